"""What requests may reach by default, and how an operator changes it."""

import asyncio
import contextlib

import pytest

import tickwork as tw
from executors.web_servers import plain, site
from tickwork.compose.settings import BadSettings, Settings, load, passed
from tickwork.compose.worker import executors_of, http_executor_of
from tickwork.compose.worker_process import WorkerProcess
from tickwork.core.base.errors import TickworkError
from tickwork.executors.egress_policy import AddressRefused


async def asked(settings: Settings, url: str) -> int:
    executor = http_executor_of(settings)
    try:
        answer = await executor._attempts._outbound.ask("GET", url, headers={}, total_s=5, body_bytes_max=100)
    finally:
        await executor._attempts._outbound.close()
    return answer.status


@pytest.mark.proves("S42", "B20")
async def test_a_worker_reaches_no_inner_address_until_its_settings_say_so():
    async with site(plain()) as there:
        with pytest.raises(AddressRefused, match="allow_networks"):
            await asked(Settings(), there.url)
        assert there.requests == []

        assert await asked(Settings(allow_networks="10.0.0.0/8, 127.0.0.0/8"), there.url) == 200


@pytest.mark.proves("S40")
async def test_ports_are_opened_by_a_setting():
    with pytest.raises(AddressRefused, match="port 8080"):
        await asked(Settings(allow_ports="8443"), "http://93.184.216.34:8080")
    for text in ("http", "0", "65536", "8080 8443", "-1"):
        with pytest.raises(BadSettings, match="is not a valid port"):
            http_executor_of(Settings(allow_ports=text))


async def test_of_several_nodes_that_a_worker_knows_requests_reach_none():
    nodes = ("http://10.0.0.5:8440", "http://10.0.0.6:8440")
    settings = Settings(url=",".join(nodes), allow_networks="10.0.0.0/24", allow_ports="8440")
    for node in nodes:
        with pytest.raises(AddressRefused) as refused:
            await asked(settings, node)
        assert refused.value.rule == "own service"


def test_a_setting_that_names_no_network_is_refused_at_the_start():
    with pytest.raises(BadSettings, match=r"allow_networks: .*is neither a network"):
        http_executor_of(Settings(allow_networks="127.0.0.0/8, office"))


def test_keys_in_the_environment_are_no_settings(tmp_path):
    found = load({}, env={"TICKWORK_SECRET_SHOP_KEY": "s3cret", "TICKWORK_SECRETS": "keys"}, here=tmp_path)

    assert found.secrets == "keys" and "s3cret" not in repr(found)


def test_a_worker_of_dev_may_reach_its_own_machine_and_gets_the_keys(monkeypatch):
    monkeypatch.setenv("TICKWORK_SECRET_SHOP_KEY", "s3cret")
    monkeypatch.setenv("TICKWORK_DATA", "elsewhere")
    settings = Settings(allow_networks="10.1.0.0/16", allow_ports="8080", secrets="keys")
    env = WorkerProcess(settings, "app.py", url="http://127.0.0.1:1")._environment()

    assert env["TICKWORK_ALLOW_NETWORKS"] == "127.0.0.0/8,::1/128,10.1.0.0/16"
    assert (env["TICKWORK_ALLOW_PORTS"], env["TICKWORK_SECRETS"]) == ("8080", "keys")
    assert env["TICKWORK_SECRET_SHOP_KEY"] == "s3cret" and "TICKWORK_DATA" not in env


def test_tasks_get_the_variables_that_are_named_and_never_ours():
    env = {"DATABASE_URL": "db", "AWS_KEY": "k", "AWS_REGION": "r", "OTHER": "o", "TICKWORK_TOKEN": "t"}

    assert passed(env, "", path="pass_env") == {}
    assert passed(env, "DATABASE_URL, AWS_*", path="pass_env") == {
        "DATABASE_URL": "db", "AWS_KEY": "k", "AWS_REGION": "r",
    }  # fmt: skip
    assert "TICKWORK_TOKEN" not in passed(env, "*", path="pass_env")
    for wrong in ("TICKWORK_TOKEN", "TICKWORK_*", "A=b", "A*B"):
        with pytest.raises(BadSettings, match="pass_env: "):
            passed(env, wrong, path="pass_env")
    assert WorkerProcess(Settings(pass_env="A"), "app.py", url="")._environment()["TICKWORK_PASS_ENV"] == "A"


@pytest.mark.parametrize(("more", "reaches"), [({}, True), ({"allow_networks": ()}, False)])
async def test_an_embedded_engine_reaches_loopback_unless_told_otherwise(tmp_path, more, reaches):
    async with site(plain(b'{"depth": 3}')) as there:

        @tw.workflow
        def poll() -> dict:
            return tw.http(f"{there.url}/stats", body_limit=1_000)

        async with asyncio.timeout(30), tw.embedded(workflows=[poll], data=tmp_path, **more) as client:
            run = await client.submit(poll)
            with contextlib.nullcontext() if reaches else pytest.raises(TickworkError, match="AddressRefused"):
                assert (await client.result(run))["body"] == {"depth": 3}

    assert len(there.requests) == reaches


@pytest.mark.parametrize("own", ["http://93.184.216.34:8440", "http://93.184.216.35:8441"])
async def test_no_node_that_a_worker_knows_is_reached_by_requests(own):
    settings = Settings(url="http://93.184.216.34:8440,http://93.184.216.35:8441", allow_ports="8440,8441")

    with pytest.raises(AddressRefused, match="this scheduler's own service"):
        await asked(settings, own)


def test_variables_of_the_env_file_reach_tasks_that_may_have_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SHARED", "from the environment")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / ".env").write_text(
        "DATABASE_URL='db'\nSHARED=from the file\nOTHER=o\nTICKWORK_PASS_ENV=DATABASE_URL,SHARED\n"
    )
    settings = load({})
    _, shell, _ = executors_of(settings, "app.py")

    assert {name: shell._attempts._env[name] for name in ("DATABASE_URL", "SHARED")} == {
        "DATABASE_URL": "db",
        "SHARED": "from the environment",
    }
    assert "OTHER" not in shell._attempts._env
