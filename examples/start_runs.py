"""A task that starts runs and gives an event, together with its result.

    tickwork run examples/start_runs.py:releases

The output says how many runs it started. `begin_new` fails in its first attempt, after it has asked for a
run: only what the accepted attempt asked for happens.
"""

import tickwork as tw


@tw.task
def build(tag: str) -> str:
    return f"built {tag}"


@tw.workflow
def pipeline(tag: str) -> str:
    return build(tag)


@tw.task(retries=1, retry_delay="50ms")
def begin_new(ctx: tw.Context, versions: list[str]) -> int:
    for tag in versions:
        ctx.start(pipeline, tag, key=f"release-{tag}")
    if ctx.attempt == 1:
        raise ConnectionError("the list of releases broke off")  # nothing has been started
    ctx.signal("releases-seen", {"count": len(versions)}, key="dashboard")
    return len(versions)


@tw.workflow
def releases(versions: list[str] = ["1.9", "1.10"]) -> int:
    return begin_new(versions)
