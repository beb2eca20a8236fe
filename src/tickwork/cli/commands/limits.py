"""Limits of tenants and of labels."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cyclopts import App

from tickwork.cli.exit_codes import CommandExit, Exit
from tickwork.cli.options import TO, ClientOptions, Count

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire

tenants = App(name="tenants", help_format="plaintext")
label_limits = App(name="label-limits", help_format="plaintext")


@tenants.default
def listed_tenants(*, to: ClientOptions = TO) -> int:
    """List tenants with their share, limits and work."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.tenants())
    if to.json:
        print_json(wire.Tenants(tenants=listing))
        return Exit.OK
    rows = [
        (safe(tenant.name), str(tenant.weight), str(tenant.live_runs), _or_dash(tenant.max_live_runs),
         str(tenant.ready), str(tenant.running), _or_dash(tenant.limit), _rate(tenant),
         "[yellow]paused[/]" if tenant.paused else "")
        for tenant in listing
    ]  # fmt: skip
    columns = ("tenant", ">weight", ">live runs", ">limit", ">ready", ">running", ">limit", "rate", "")
    console().print(table(columns, rows))
    return Exit.OK


def _or_dash(limit: int | None) -> str:
    return "-" if limit is None else str(limit)


def _rate(tenant: "wire.Tenant") -> str:
    return "-" if tenant.rate is None else f"{tenant.rate} per {tenant.per}"


@tenants.command(name="put")
def put_tenant(
    name: str = "default",
    /,
    *,
    weight: Count = 1,
    limit: Count | None = None,
    rate: Count | None = None,
    per: str = "1s",
    burst: Count | None = None,
    window: Literal["bucket", "sliding"] = "bucket",
    max_live_runs: Count | None = None,
    to: ClientOptions = TO,
) -> int:
    """Replace the share and the limits of a tenant; what is left out is unlimited.

    Parameters
    ----------
    name
        Its name.
    weight
        Its share where tenants compete: 1 to 100.
    limit
        Maximum number of concurrent tasks.
    rate
        Average number of starts within the time of --per; with --window sliding, the maximum.
    per
        The period of --rate.
    burst
        Number of tasks that may start at once after an idle time (--rate). Not with a sliding window.
    window
        How the rate is counted: a token bucket, or a sliding window that never has more starts.
    max_live_runs
        Maximum number of unfinished runs; more are refused.
    """
    with to.client() as client:
        client.put_tenant(
            name, weight=weight, limit=limit, rate=rate, per=per, burst=burst, window=window,
            max_live_runs=max_live_runs,
        )  # fmt: skip
    return _print_result("tenant", name, "put", to)


@tenants.command(name="apply")
def apply_tenants(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Replace the limits of the tenants in a file.

    Parameters
    ----------
    file
        YAML, JSON or TOML: a mapping from names to weight, limit, rate, per, burst, window and max_live_runs.
    """
    import msgspec

    from tickwork.cli.commands.resource_file import read_resources
    from tickwork.protocol import http_models as wire

    requests = read_resources(file, "tenants", wire.TenantRequest)
    with to.client() as client:
        for name, request in requests.items():
            client.put_tenant(name, **msgspec.structs.asdict(request))
    return _print_applied("tenants", requests, to)


@tenants.command(name="pause")
def pause_tenant(name: str = "default", /, *, reason: str = "", to: ClientOptions = TO) -> int:
    """Pause a tenant: start none of its tasks until it is resumed.

    Parameters
    ----------
    name
        Its name.
    reason
        The reason; it is recorded.
    """
    with to.client() as client:
        client.pause_tenant(name, reason=reason)
    return _print_result("tenant", name, "paused", to)


@tenants.command(name="resume")
def resume_tenant(name: str = "default", /, *, to: ClientOptions = TO) -> int:
    """Resume a paused tenant.

    Parameters
    ----------
    name
        Its name.
    """
    with to.client() as client:
        client.resume_tenant(name)
    return _print_result("tenant", name, "resumed", to)


@label_limits.default
def listed_labels(*, to: ClientOptions = TO) -> int:
    """List the limits of labels, with the tasks that run under each."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        listing = tuple(client.label_limits())
    if to.json:
        print_json(wire.LabelLimits(limits=listing))
        return Exit.OK
    if not listing:
        console(stderr=True).print("no label has a limit; tickwork label-limits put sets one")
        return Exit.OK
    rows = [(safe(f"{entry.label}={entry.value}"), str(entry.running), str(entry.limit)) for entry in listing]
    console().print(table(("label", ">running", ">limit"), rows))
    return Exit.OK


@label_limits.command(name="put")
def put_label(label: str, /, *, limit: int, to: ClientOptions = TO) -> int:
    """Limit the number of concurrent tasks that require a label.

    Parameters
    ----------
    label
        The label as name=value: gpu=true.
    limit
        Maximum number of concurrent tasks.
    """
    name, value = _pair(label)
    with to.client() as client:
        client.put_label_limit(name, value, limit)
    return _print_result("label", label, f"limited to {limit}", to)


@label_limits.command(name="apply")
def apply_labels(file: Path, /, *, to: ClientOptions = TO) -> int:
    """Set the limits of the labels in a file; others are not affected.

    Parameters
    ----------
    file
        YAML, JSON or TOML: a mapping from labels (gpu=true) to limit.
    """
    from tickwork.cli.commands.resource_file import read_resources
    from tickwork.protocol import http_models as wire

    requests = read_resources(file, "label_limits", wire.LabelLimitRequest)
    pairs = {label: _pair(label) for label in requests}
    with to.client() as client:
        for label, request in requests.items():
            client.put_label_limit(*pairs[label], request.limit)
    return _print_applied("labels", requests, to)


@label_limits.command(name="delete")
def delete_label(label: str, /, *, to: ClientOptions = TO) -> int:
    """Delete the limit of a label.

    Parameters
    ----------
    label
        The label as name=value: gpu=true.
    """
    with to.client() as client:
        client.delete_label_limit(*_pair(label))
    return _print_result("label", label, "no longer limited", to)


def _pair(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not mark or not name or not value:
        raise CommandExit(Exit.USAGE, f"{text!r} is not name=value, such as gpu=true")
    return name, value


def _print_result(kind: str, name: str, what: str, to: ClientOptions) -> int:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({kind: name})
    else:
        console().print(f"{kind} {safe(name)}: {what}", soft_wrap=True)
    return Exit.OK


def _print_applied(kinds: str, names: "dict[str, wire.TenantRequest] | dict[str, wire.LabelLimitRequest]",
                   to: ClientOptions) -> int:  # fmt: skip
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json({kinds: sorted(names)})
    else:
        console().print(f"{kinds} put: {safe(', '.join(names))}", soft_wrap=True)
    return Exit.OK
