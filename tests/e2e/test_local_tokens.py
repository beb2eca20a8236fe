"""A server without a token of its settings protects itself: who gets in, and that its own user notices nothing."""

import json
import stat

import httpx2
import pytest

import tickwork as tw
from terminal import Terminal, free_port
from tickwork.cli.exit_codes import Exit
from tickwork.sdk.client.connection import LocalBearer
from tickwork.system import local_token as localtoken


@pytest.fixture
def house(tmp_path):
    found = Terminal(tmp_path)
    yield found
    found.close()


def test_dev_lets_its_own_user_in_without_any_setup_and_nobody_else(house):
    house.start("dev", "app.py").until("worker ready")
    run = house.run("run", "greet", "--json")
    assert run.returncode == 0, run.stderr
    with tw.Client(house.url) as client:
        assert client.result(client.submit("greet", name="ann"), timeout=20) == "HELLO ANN"

    nobody = httpx2.post(f"{house.url}/v1/runs", json={"workflow": "greet"})
    assert (nobody.status_code, nobody.json()["code"]) == (401, "unauthorized")
    for path in ("/v1/runs", "/metrics", "/v1/workers"):
        assert httpx2.get(house.url + path).status_code == 401
    for path in ("/healthz", "/readyz", "/"):
        assert httpx2.get(house.url + path).status_code == 200
    token = house.folder / ".tickwork" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600 and len(token.read_text().strip()) >= 32
    other = house.run("runs", XDG_STATE_HOME=str(house.folder / "of-another-user"))
    assert other.returncode == Exit.REFUSED
    assert "TICKWORK_TOKEN_FILE" in other.stderr and "Authorization" not in other.stderr
    assert house.run("runs", XDG_STATE_HOME="/nowhere", TICKWORK_TOKEN_FILE=str(token)).returncode == 0


def test_a_worker_that_is_there_before_its_server_finds_the_token(house):
    worker = house.start("worker", "app.py")
    server = house.start("server")
    server.until("tickwork server")
    worker.until("serves app.py")
    assert house.run("run", "greet").returncode == 0

    server.end()
    (house.folder / ".tickwork" / "token").unlink()  # the next server makes another one
    house.start("server").until("tickwork server")
    assert house.run("run", "greet").returncode == 0


def test_a_browser_gets_in_by_a_link_that_works_once(house):
    house.start("server").until("tickwork server")
    link = json.loads(house.run("page", "--json").stdout)["url"]
    assert link.startswith(f"{house.url}/open?code=")
    with httpx2.Client(base_url=house.url) as browser:
        answer = browser.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and f"tickwork_{house.port}=" in cookie
        assert browser.get("/v1/runs").status_code == 200
        own = {"origin": house.url, "sec-fetch-site": "same-origin"}
        assert browser.post("/v1/queues/default/pause", json={}, headers=own).status_code == 204
        for wrong in (
            {"origin": f"http://127.0.0.1:{house.port + 1}", "sec-fetch-site": "same-site"},
            {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
            {"origin": f"http://127.0.0.1:{house.port + 1}"},
            {},
        ):
            assert browser.post("/v1/queues/default/resume", json={}, headers=wrong).status_code in (401, 403), wrong
        assert browser.get("/v1/runs", headers={"sec-fetch-site": "same-site"}).status_code == 401

    again = httpx2.get(link)
    assert (again.status_code, again.json()["code"]) == (403, "link_used")
    assert httpx2.get(f"{house.url}/open?code=1.2.3").status_code == 403


def test_a_token_goes_to_no_port_whose_server_is_gone(house):
    server = house.start("server")
    server.until("tickwork server")
    assert localtoken.find(house.url) is not None
    assert localtoken.find(house.url.replace("127.0.0.1", "localhost")).url == house.url
    assert localtoken.find(house.url.replace("127.0.0.1", "127.0.0.2")) is None
    server.process.kill()
    server.process.wait()

    assert localtoken.find(house.url) is None  # whoever has the port now is sent nothing
    request = httpx2.Request("GET", house.url)
    next(LocalBearer().auth_flow(request))
    assert "authorization" not in request.headers


def test_a_token_that_others_can_read_is_refused(house):
    folder = house.folder / ".tickwork"
    folder.mkdir()
    (folder / "token").write_text("x" * 40)
    (folder / "token").chmod(0o644)
    done = house.run("server")

    assert done.returncode == Exit.SETTINGS and "other users can read" in done.stderr


@pytest.mark.parametrize("token", ["a", "fifteen-letters"])
def test_a_short_token_is_refused(house, token):
    done = house.run("server", TICKWORK_TOKEN=token)

    assert done.returncode == Exit.SETTINGS
    assert f"has {len(token)} characters" in done.stderr and "at least 16" in done.stderr


def test_an_open_server_is_a_choice(house):
    house.start("server", TICKWORK_UNPROTECTED="true").until("tickwork server")

    assert httpx2.get(f"{house.url}/v1/runs").status_code == 200
    crossed = httpx2.get(f"{house.url}/v1/runs", headers={"sec-fetch-site": "cross-site"})
    assert (crossed.status_code, crossed.json()["code"]) == (403, "cross_site")
    assert not (house.folder / ".tickwork" / "token").exists()


def test_a_folder_for_notes_that_belongs_to_others_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "tickwork").mkdir(mode=0o700)
    (tmp_path / "tickwork").chmod(0o777)

    with (
        pytest.raises(localtoken.Unsafe, match="other users"),
        localtoken.announced("127.0.0.1", free_port(), "x" * 20),
    ):
        pass
    assert not list((tmp_path / "tickwork").iterdir())
