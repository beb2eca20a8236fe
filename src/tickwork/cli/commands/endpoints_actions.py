"""Making endpoints and deciding about them. Each is durable when the command returns, and recorded with who asked."""

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
    "When: five fields, or six with seconds first."
    every: str | None = None
    "When: an interval, counted from the start of a run: 5m, PT5M."
    timezone: str | None = None
    "Zone of --cron, such as Europe/Berlin (UTC)."
    method: str | None = None
    "GET, HEAD, POST, PUT, PATCH, DELETE or OPTIONS (GET)."
    header: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    "A header as 'Name: value'; again for each."
    body: str | None = None
    "What is sent: JSON, or else text."
    timeout: str | None = None
    "How long one try may take (30s; 30m at most)."
    body_limit: int | None = None
    "Bytes of the answer that are kept (100000)."
    success: str | None = None
    "CEL over status and body; any 2xx where none is given."
    retries: int | None = None
    "Further tries within a run (0)."
    retry_delay: str | None = None
    "Before the first of these; doubled for each further one (1s)."
    sign: str | None = None
    "Name of a secret of the worker to sign requests with."
    min_interval: str | None = None
    "Never sooner than this after a run."
    max_interval: str | None = None
    "Never later than this after a run."
    max_duration: str | None = None
    "How long a run may take with all of its tries (5m, or as long as they need)."
    queue: str | None = None
    "Queue of the workers that call it."
    group: str | None = None
    "Endpoints of a group are paused together."
    description: str | None = None
    "What it is for."
    pause_after: int | None = None
    "Pause after so many failed runs in a row (0: never)."

    def fields(self) -> dict[str, Any]:
        from tickwork.cli.input_values import read_value

        given: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        given["headers"] = dict(_header(one) for one in given.pop("header"))
        if self.body is not None:
            given["body"] = read_value(self.body)
        return given


WANTED = EndpointOptions()


def put(
    name: str,
    target: str,
    /,
    *,
    wanted: EndpointOptions = WANTED,
    to: ClientOptions = TO,
) -> int:
    """Make an endpoint, or replace it as a whole; one in the archive comes back.

    Parameters
    ----------
    name
        Its name.
    target
        The URL to call.
    """
    from tickwork.cli.output import print_json

    fields = wanted.fields()
    with to.client() as client:
        told = client.put_endpoint(name, target, **fields)
    if to.json:
        print_json(told)
    else:
        _show({name: told})
    return Exit.OK


def apply(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Make or replace the endpoints of a file, all or none; others are left alone.

    Parameters
    ----------
    file
        YAML or JSON: from name to what an endpoint has.
    """
    from tickwork.cli.commands.endpointfile import read_endpoints
    from tickwork.cli.output import print_json
    from tickwork.protocol import http_models as wire

    wanted = read_endpoints(file)
    with to.client() as client:
        told = client.apply_endpoints(wanted)
    if to.json:
        print_json(wire.EndpointPreviews(endpoints=told))
    else:
        _show(told)
    return Exit.OK


def run(name: str, /, *, to: ClientOptions = TO) -> int:
    """Call an endpoint now, beside its times; print the run's id.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=False)


def try_out(name: str, /, *, to: ClientOptions = TO) -> int:
    """Call an endpoint now as a test, which changes neither its times nor its failures; print the run's id.

    Parameters
    ----------
    name
        Its name.
    """
    return _fired(name, to, test=True)


def pause(
    name: str = "", /, *, group: str = "", reason: str = "", until: str | None = None, to: ClientOptions = TO
) -> int:
    """Do not call an endpoint, or those of a group, until it is resumed.

    Parameters
    ----------
    name
        Its name.
    group
        All of this group, instead of one.
    reason
        Why; it is recorded and shown.
    until
        Resume by itself at this time (RFC 3339); of one endpoint only.
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
        return _told(client, name, "paused", to)


def resume(name: str = "", /, *, group: str = "", to: ClientOptions = TO) -> int:
    """Let a paused endpoint or group be called again, from now on.

    Parameters
    ----------
    name
        Its name.
    group
        All of this group, instead of one.
    """
    _one_of(name, group)
    with to.client() as client:
        if group:
            client.resume_group(group)
            return _group_told(group, "resumed", to)
        client.endpoint(name)
        client.resume_schedule(name)
        return _told(client, name, "resumed", to)


def reset_failures(name: str, /, *, to: ClientOptions = TO) -> int:
    """Forget the failures of an endpoint, and so its backoff.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.endpoint(name)
        client.reset_failures(name)
        return _told(client, name, "failures reset", to)


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
    """Advise the Governor of an endpoint: call it at this interval, or once at this time.

    Parameters
    ----------
    name
        Its name.
    every
        The interval: 30s, PT30S.
    at
        The one time (RFC 3339).
    ttl
        How long the hint counts (1h; with --at, until 1h after it).
    reason
        Why; it is recorded and shown.
    cost
        What the advice did cost, in whatever the adviser counts.
    """
    if every is None and at is None:
        raise CommandExit(
            Exit.USAGE, "a hint has --every, --at, or both; tickwork endpoints clear-hints takes hints back"
        )
    with to.client() as client:
        client.endpoint(name)
        client.hint(name, interval=every, at=at, ttl=ttl, reason=reason, cost=cost)
        return _told(client, name, "hint taken", to)


def clear_hints(name: str, /, *, to: ClientOptions = TO) -> int:
    """Take all hints for an endpoint back; its own times count again.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.endpoint(name)
        client.clear_hints(name)
        return _told(client, name, "hints cleared", to)


def archive(name: str, /, *, to: ClientOptions = TO) -> int:
    """Put an endpoint away with its history: it is called no more. Putting it again brings it back.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.archive_endpoint(name)
        return _told(client, name, "archived", to)


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


def _show(told: "dict[str, wire.EndpointPreview]") -> None:
    from tickwork.cli.output import console, safe

    screen = console()
    for name, one in told.items():
        screen.print(f"{safe(name)}: {safe(one.says)}; {_next(one)}", soft_wrap=True)
        for warning in one.warnings:
            screen.print(f"  [yellow]{safe(warning.code)}[/] {safe(warning.text)}", soft_wrap=True)


def _group_told(group: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({"group": group})
    else:
        console().print(f"group {safe(group)}: {what}", soft_wrap=True)
    return Exit.OK


def _told(client: "Client", name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    one = client.endpoint(name)
    if to.json:
        print_json(one)
        return Exit.OK
    console().print(f"{safe(name)}: {safe(what)}; {_next(one)}", soft_wrap=True)
    return Exit.OK


def _next(one: "wire.Endpoint | wire.EndpointPreview") -> str:
    from tickwork.cli.output import safe, when

    why = f" ({safe(one.source)})" if one.source else ""
    return (f"next {when(one.next_at)}" if one.next_at else "nothing is due") + why
