"""Commands that write endpoints: from flags, or from a file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire


@Parameter(name="*")
@dataclass(frozen=True)
class EndpointOptions:
    """The fields of an endpoint besides its URL; the server has the defaults."""

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


DEFAULTS = EndpointOptions()


def put(
    name: str,
    target: str,
    /,
    *,
    if_match: str = "",
    options: EndpointOptions = DEFAULTS,
    to: ClientOptions = TO,
) -> int:
    """Create an endpoint, or replace it completely; an archived endpoint is restored.

    Parameters
    ----------
    name
        Its name.
    target
        The URL to call.
    if_match
        Fail if the endpoint has changed since it was shown with this ETag.
    """
    from tickwork.cli.output import print_json

    fields = options.fields()
    with to.client() as client:
        preview = client.put_endpoint(name, target, if_match=if_match, **fields)
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


def _header(text: str) -> tuple[str, str]:
    name, mark, value = text.partition(":")
    if not mark or not name.strip():
        raise CommandExit(Exit.USAGE, f"--header {text!r} is not 'Name: value'")
    return name.strip(), value.strip()


def _show(previews: "dict[str, wire.EndpointPreview]") -> None:
    from tickwork.cli.output import console, safe

    screen = console()
    for name, preview in previews.items():
        screen.print(f"{safe(name)}: {safe(preview.says)}; {next_time(preview)}", soft_wrap=True)
        for warning in preview.warnings:
            screen.print(f"  [yellow]{safe(warning.code)}[/] {safe(warning.text)}", soft_wrap=True)


def next_time(endpoint: "wire.Endpoint | wire.EndpointPreview") -> str:
    from tickwork.cli.output import safe, source_label, when
    from tickwork.protocol import http_models as wire

    hints = endpoint.hints if isinstance(endpoint, wire.Endpoint) else None
    why = f" ({safe(source_label(endpoint.source, hints))})" if endpoint.source else ""
    return (f"next {when(endpoint.next_at)}" if endpoint.next_at else "nothing is due") + why
