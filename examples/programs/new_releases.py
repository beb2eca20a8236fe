"""A sensor: it polls a list of releases, and starts a pipeline for each new one, exactly once.

The cursor is the last release it has started. It moves on together with what was started: the runs begin when the
result of `start_pipelines` is accepted, and the function continues as new with the next cursor.

    tickwork run examples/programs/new_releases.py:watch -i project=tickwork --detach
    tickwork run examples/programs/new_releases.py:pipeline -i project=tickwork -i tag=1.4   # once more, by hand
"""

import tickwork as tw

POLLS_PER_HISTORY = 100


def releases_after(project: str, cursor: str) -> list[str]:
    """In their order; an empty cursor stands for the beginning."""
    raise NotImplementedError(f"ask the forge for the releases of {project} after {cursor}")


@tw.task(retries=3)
def build(project: str, tag: str) -> str:
    return f"{project} {tag}"


@tw.workflow
def pipeline(project: str, tag: str) -> str:
    return build(project, tag)


@tw.task
def start_pipelines(ctx: tw.Context, project: str, tags: list[str]) -> list[str]:
    return [ctx.start(pipeline, project, tag, key=f"{project} {tag}") for tag in tags]


@tw.durable(concurrency=(1, "project"))
async def watch(ctx: tw.Durable, project: str, cursor: str = "") -> None:
    for _ in range(POLLS_PER_HISTORY):
        try:
            tags = await ctx.step(releases_after, project, cursor, timeout="30s")
        except tw.StepFailed:
            tags = []  # the forge is away; the next poll asks for the same
        if tags:
            await ctx.call(start_pipelines, project, tags)
            ctx.continue_as_new(project=project, cursor=tags[-1])
        await ctx.sleep("5m")
    ctx.continue_as_new(project=project, cursor=cursor)
