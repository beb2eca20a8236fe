"""Webhooks for tests, and what a sender does to sign them: written from the specification, apart from our own code."""

import base64
import hashlib
import hmac
import time

from tickwork.compose.settings import Settings
from tickwork.compose.webhooks import webhooks_of

KEYS = {name: (name * 8).encode()[:32].ljust(32, b"-") for name in ("shop", "old", "new", "foreign")}
DECLARED = """
[shop]
event = "order"

[keyed]
event = "answer"
key = "event.order.number"
secrets = ["old", "new"]
window = "10m"
"""


def secret(name):
    return "whsec_" + base64.b64encode(KEYS[name]).decode()


def variables(*names):
    return {f"TICKWORK_SECRET_{name.upper()}": secret(name) for name in names}


def declared(folder, text=DECLARED, *, env=None, secrets=""):
    """What a server reads at its start."""
    path = folder / "webhooks.toml"
    path.write_text(text)
    env = variables("shop", "old", "new") if env is None else env
    return webhooks_of(Settings(webhooks=str(path), secrets=str(secrets)), env)


def signed(body, *, key="shop", message="msg-1", age_s=0, more=""):
    """The headers of a request, as a sender of Standard Webhooks makes them."""
    timestamp = str(int(time.time()) - age_s)
    content = message.encode() + b"." + timestamp.encode() + b"." + body
    signature = base64.b64encode(hmac.new(KEYS[key], content, hashlib.sha256).digest()).decode()
    return {
        "content-type": "application/json",
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"{more}v1,{signature}",
    }
