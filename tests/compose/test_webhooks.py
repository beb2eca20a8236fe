"""The file that declares webhooks: what is wrong in it is refused when a server starts, by its field."""

import pytest

from api.signed_webhooks import declared, secret, variables
from tickwork.compose.cluster import child_environment
from tickwork.compose.server import serving
from tickwork.compose.settings import BadSettings, Settings


@pytest.mark.parametrize(("text", "path", "words"), [
    ('[shop]\nevnt = "a"', "webhooks.shop", "evnt"),
    ('[shop]\nevent = "two words"', "webhooks.shop.event", "event name"),
    ('["two words"]', "webhooks.two words", "webhook name"),
    ('[shop]\nkey = "event.("', "webhooks.shop.key", ""),
    ('[shop]\nkey = "inputs.a"', "webhooks.shop.key", "inputs"),
    ('[shop]\nwindow = "soon"', "webhooks.shop.window", "soon"),
    ('[shop]\nwindow = "10ms"', "webhooks.shop.window", ""),
    ('[shop]\nwindow = "2d"', "webhooks.shop.window", ""),
    ('[shop]\nsecrets = ["shop", "gone"]', "webhooks.shop.secrets", "TICKWORK_SECRET_GONE"),
    ('[shop]\nsecrets = ["short"]', "webhooks.shop.secrets", "at least 16"),
    ('[shop]\nsecrets = ["plain"]', "webhooks.shop.secrets", "base64"),
    ('[shop]\nsecrets = ["../shop"]', "webhooks.shop.sign", "secret name"),
    ("shop = 1", "webhooks.shop", ""),
    ("[shop", "webhooks.toml", "cannot be read"),
])  # fmt: skip
def test_a_webhook_that_could_never_be_received_is_refused_by_its_field(tmp_path, text, path, words):
    env = variables("shop") | {"TICKWORK_SECRET_SHORT": "whsec_AAAA", "TICKWORK_SECRET_PLAIN": "p@ssw0rd-in-plain-text"}
    with pytest.raises(BadSettings) as refused:
        declared(tmp_path, text, env=env)

    assert refused.value.path == path
    assert words in refused.value.message and "p@ssw0rd" not in refused.value.message


def test_a_short_table_has_an_event_and_a_secret_of_its_name_and_five_minutes(tmp_path):
    (webhook,) = declared(tmp_path, "[shop]")

    assert (webhook.event, webhook.secrets, webhook.window_ms, webhook.key) == ("shop", ("shop",), 300_000, None)


async def test_a_server_does_not_start_without_the_file_that_it_was_given(tmp_path):
    with pytest.raises(BadSettings, match="is not there"):
        async with serving(Settings(data=str(tmp_path / "data"), webhooks=str(tmp_path / "gone.toml"), port=0)):
            raise AssertionError("it started")


def test_each_process_of_a_server_gets_the_secrets_and_no_other_setting_of_its_parent():
    env = child_environment(Settings(), variables("shop") | {"TICKWORK_PORT": "1", "HOME": "/root"})

    assert env["TICKWORK_SECRET_SHOP"] == secret("shop")
    assert (env["TICKWORK_PORT"], env["HOME"]) == ("8440", "/root")
