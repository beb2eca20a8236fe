"""Actions on endpoints. Each is durable when the command returns, and the journal names its author."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire
    from tickwork.sdk.client.client import Client


@Parameter(name="*")
@dataclass(frozen=True)
class EndpointOptions:
    """What an endpoint has beside its URL; the server has the defaults."""

    cron: str | None = None
    "Times: five cron fields, or six with seconds first."
    every: str | None = None
    "An interval from the start of one run to the next: 5m, PT5M."
    timezone: str | None = None
    "Time zone of --cron, such as Europe/Berlin (UTC)."
    method: str | None = None
    "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS (GET)."
    header: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "A header as 'Name: value'; repeat for each header."
    body: str | None = None
    "The body to send: JSON, or text if it is not valid JSON."
    timeout: str | None = None
    "Time limit of one attempt (30s; 30m at most)."
    body_limit: int | None = None
    "Bytes of the response to keep (100000)."
    success: str | None = None
    "CEL expression over status and body (any 2xx status)."
    retries: int | None = None
    "Further attempts within a run (0)."
    retry_delay: str | None = None
    "Delay before the first of these, doubled for each further one (1s)."
    sign: str | None = None
    "Name of the worker's secret that signs requests."
    min_interval: str | None = None
    "Minimum time after a run."
    max_interval: str | None = None
    "Maximum time after a run."
    max_duration: str | None = None
    "Time limit of a run with all its attempts (5m, or as long as they need)."
    queue: str | None = None
    "Queue of the workers that call it."
    group: str | None = None
    "A group of endpoints that are paused together."
    description: str | None = None
    "A description for people."
    pause_after: int | None = None
    "Pause after this many failed runs in a row (0: never)."

    def fields(self) -> dict[str, Any]:
        from tickwork.cli.input_values import read_value

        given: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        given["headers"] = dict(_header(header) for header in given.pop("header"))
        if self.body is not None:
            given["body"] = read_value(self.body)
        return given


WANTED = EndpointOptions()


def put(
    name: str,
    target: str,
    /,
    *,
    options: EndpointOptions = WANTED,
    to: ClientOptions = TO,
) -> int:
    """Create an endpoint, or replace it completely; an archived endpoint is restored.

    Parameters
    ----------
    name
        Its name.
    target
        The URL to call.
    """
    from tickwork.cli.output import print_json

    fields = options.fields()
    with to.client() as client:
        preview = client.put_endpoint(name, target, **fields)
    if to.json:
        print_json(preview)
    else:
        _show({name: preview})
    return Exit.OK


def apply(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Create or replace the endpoints in a file, all or none; others are not affected.

    Parameters
    ----------
    file
        YAML or JSON: a mapping from names to the fields of an endpoint.
    """
    from tickwork.cli.commands.schedule_file import read_endpoints
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    requests = read_endpoints(file)
    with to.client() as client:
        previews = client.apply_endpoints(requests)
    if to.json:
        print_json(wire.EndpointPreviews(endpoints=previews))
    else:
        _show(previews)
    return Exit.OK


def run(name: str, /, *, to: ClientOptions = TO) -> int:
    """Call an endpoint now, in addition to its times, and print the run's id.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=False)


def try_out(name: str, /, *, to: ClientOptions = TO) -> int:
    """Call an endpoint now as a test, without effect on its times and failures, and print the run's id.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=True)


def pause(
    name: str = "", /, *, group: str = "", reason: str = "", until: str | None = None, to: ClientOptions = TO
) -> int:
    """Pause an endpoint, or a group of endpoints, until it is resumed.

    Parameters
    ----------
    name
        Its name.
    group
        All endpoints of this group, instead of a single endpoint.
    reason
        The reason; it is recorded and shown.
    until
        Resume automatically at this time (RFC 3339); for a single endpoint only.
    """
    _one_of(name, group)
    with to.client() as client:
        if group:
            if until is not None:
                raise CommandExit(Exit.USAGE, "the pause of a group ends when it is resumed; leave out --until")
            client.pause_group(group, reason=reason)
            return _group_told(group, "paused", to)
        client.endpoint(name)  # what is a schedule but no endpoint is not meant
        client.pause_schedule(name, reason=reason, until=until)
        return _print_result(client, name, "paused", to)


def resume(name: str = "", /, *, group: str = "", to: ClientOptions = TO) -> int:
    """Resume a paused endpoint or group, from now on.

    Parameters
    ----------
    name
        Its name.
    group
        All endpoints of this group, instead of a single endpoint.
    """
    _one_of(name, group)
    with to.client() as client:
        if group:
            client.resume_group(group)
            return _group_told(group, "resumed", to)
        client.endpoint(name)
        client.resume_schedule(name)
        return _print_result(client, name, "resumed", to)


def reset_failures(name: str, /, *, to: ClientOptions = TO) -> int:
    """Reset the failure count of an endpoint, and so its backoff.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.endpoint(name)
        client.reset_failures(name)
        return _print_result(client, name, "failures reset", to)


def hint(
    name: str,
    /,
    *,
    every: str | None = None,
    at: str | None = None,
    ttl: str | None = None,
    reason: str = "",
    cost: int = 0,
    to: ClientOptions = TO,
) -> int:
    """Give the Governor of an endpoint a hint: call it at this interval, or once at this time.

    Parameters
    ----------
    name
        Its name.
    every
        The interval: 30s, PT30S.
    at
        The single time (RFC 3339).
    ttl
        How long the hint is valid (1h; with --at, until 1h after that time).
    reason
        The reason; it is recorded and shown.
    cost
        The cost of the hint, in a unit of the author's choice.
    """
    if every is None and at is None:
        raise CommandExit(
            Exit.USAGE, "a hint has --every, --at, or both; tickwork endpoints clear-hints takes hints back"
        )
    with to.client() as client:
        client.endpoint(name)
        client.hint(name, interval=every, at=at, ttl=ttl, reason=reason, cost=cost)
        return _print_result(client, name, "hint taken", to)


def clear_hints(name: str, /, *, to: ClientOptions = TO) -> int:
    """Withdraw all hints for an endpoint; its own times apply again.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.endpoint(name)
        client.clear_hints(name)
        return _print_result(client, name, "hints cleared", to)


def archive(name: str, /, *, to: ClientOptions = TO) -> int:
    """Archive an endpoint with its history; it is no longer called. `endpoints put` restores it.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.archive_endpoint(name)
        return _print_result(client, name, "archived", to)


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition(":")
    if not mark or not name.strip():
        raise CommandExit(Exit.USAGE, f"--header {text!r} is not 'Name: value'")
    return name.strip(), value.strip()


def _one_of(name: str, group: str) -> None:
    if bool(name) is bool(group):
        raise CommandExit(Exit.USAGE, "name one endpoint, or a group with --group")


def _fired(name: str, to: ClientOptions, *, test: bool) -> int:
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        run_id = client.test_endpoint(name) if test else client.run_endpoint(name)
    if to.json:
        print_json(wire.Triggered(run_id=run_id))
    else:
        print(run_id)
    return Exit.OK


def _show(previews: "dict[str, wire.EndpointPreview]") -> None:
    from tickwork.cli.output import console, safe

    screen = console()
    for name, preview in previews.items():
        screen.print(f"{safe(name)}: {safe(preview.says)}; {_next(preview)}", soft_wrap=True)
        for warning in preview.warnings:
            screen.print(f"  [yellow]{safe(warning.code)}[/] {safe(warning.text)}", soft_wrap=True)


def _group_told(group: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"group": group})
    else:
        console().print(f"group {safe(group)}: {what}", soft_wrap=True)
    return Exit.OK


def _print_result(client: "Client", name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    endpoint = client.endpoint(name)
    if to.json:
        print_json(endpoint)
        return Exit.OK
    console().print(f"{safe(name)}: {safe(what)}; {_next(endpoint)}", soft_wrap=True)
    return Exit.OK


def _next(endpoint: "wire.Endpoint | wire.EndpointPreview") -> str:
    from tickwork.cli.output import safe, when

    why = f" ({safe(endpoint.source)})" if endpoint.source else ""
    return (f"next {when(endpoint.next_at)}" if endpoint.next_at else "nothing is due") + why
