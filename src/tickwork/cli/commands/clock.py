"""`tickwork clock`: how the server's clocks stand, and a person's word that the wall clock is right."""

from typing import TYPE_CHECKING

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol.http_models import ClockStatus

clock = App(name="clock", help_format="plaintext")


@clock.default
def show(*, to: ClientOptions = TO) -> int:
    """Show the wall clock, real time and logical time of the server, and whether they agree."""
    with to.client() as client:
        status = client.status().clock
    _print_status(status, to)
    return Exit.OK


@clock.command
def confirm(*, to: ClientOptions = TO) -> int:
    """Confirm the wall clock: adopt a step that is held back."""
    with to.client() as client:
        client.confirm_clock()
        status = client.status().clock
    _print_status(status, to)
    return Exit.OK


def _print_status(status: "ClockStatus | None", to: ClientOptions) -> None:
    from tickwork.cli.output import console, print_json, safe

    if to.json:
        print_json(status)
        return
    screen = console()
    if status is None:
        screen.print("this server runs on virtual time")
        return
    colour = "green" if status.state == "steady" else "yellow"
    screen.print(f"clocks   [{colour}]{status.state}[/]")
    screen.print(f"wall     {safe(status.wall_time)}")
    screen.print(f"real     {safe(status.real_time)}")
    screen.print(f"logical  {safe(status.logical_time)}")
    if status.description:
        screen.print(safe(status.description), soft_wrap=True)
