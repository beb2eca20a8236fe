"""`tickwork webhooks`: list the signed requests of other services that the server receives."""

from typing import TYPE_CHECKING

from cyclopts import App

from tickwork.cli.exit_codes import Exit
from tickwork.cli.options import TO, ClientOptions

if TYPE_CHECKING:
    from tickwork.protocol import http_models as wire

webhooks = App(name="webhooks", help_format="plaintext")


@webhooks.default
def listed(*, to: ClientOptions = TO) -> int:
    """List the webhooks that the server receives, and the event that each becomes. Secrets are not shown."""
    from tickwork.cli.output import console, print_json, safe, table
    from tickwork.protocol import http_models as wire

    with to.client() as client:
        rows = tuple(client.webhooks())
    if to.json:
        print_json(wire.Webhooks(webhooks=rows))
        return Exit.OK
    if not rows:
        console().print("no webhooks: declare them in the file of the setting webhooks", soft_wrap=True)
        return Exit.OK
    cells = [
        (safe(row.name), safe(row.path), safe(row.event), safe(row.key), row.window, _secrets(row)) for row in rows
    ]
    console().print(table(("webhook", "path", "event", "key", "window", "secrets"), cells))
    return Exit.OK


def _secrets(webhook: "wire.Webhook") -> str:
    from tickwork.cli.output import safe

    names = safe(", ".join(webhook.secrets))
    missing = len(webhook.secrets) - webhook.readable
    return f"{names} ({missing} missing)" if missing else names
