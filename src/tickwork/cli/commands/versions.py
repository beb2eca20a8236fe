"""The versions of an application: rollout and rollback."""

from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tickwork.protocol import http_models as wire


def versions(
    deed: Literal["list", "set-latest"] = "list",
    version: str = "",
    /,
    *,
    application: Annotated[str, Parameter(name=("--application", "-a"))] = "",
    to: ClientOptions = TO,
) -> int:
    """List the versions of an application, newest first.

    `tickwork versions set-latest V` makes V the latest version: its definitions and schedules apply from then on. Runs
    that have started are not affected.

    Parameters
    ----------
    deed
        list, or set-latest.
    version
        The version to make the latest.
    application
        The application; needed if there are several.
    """
    from tickwork.cli.output import print_json
    from tickwork.core.base.errors import Refused
    from tickwork.protocol import http_models as wire

    if bool(version) != (deed == "set-latest"):
        raise Refused("usage", "write `tickwork versions`, or `tickwork versions set-latest VERSION`")
    with to.client() as client:
        if version:
            client.set_latest_application_version(version, application=application)
        application_versions = tuple(client.list_application_versions(application))
    if to.json:
        print_json(wire.AppVersions(versions=application_versions))
    else:
        _show(application_versions)
    return Exit.OK


def _show(versions: "Sequence[wire.AppVersion]") -> None:
    from tickwork.cli.output import console, safe, table, when

    rows = [
        (safe(version.application), safe(version.version_name), "[green]latest[/]" if version.latest else "",
         when(version.version_timestamp), when(version.created_at), str(version.workers),
         f"[red]{version.stranded} waiting for a worker of it[/]" if version.stranded else "")
        for version in versions
    ]  # fmt: skip
    console().print(table(("application", "version", "", "since", "first seen", ">workers", ""), rows))
