"""Endpoints through the API; what they do when they are called is tests/runtime/services/test_endpoints.py."""

import pytest

from api.scripted_worker import Worker, flow, publish

SHOP = {"url": "https://shop.example/queue", "every": "5m", "group": "shops", "retries": 2}


async def put(http, name="shop", **fields):
    return await http.put(f"/v1/endpoints/{name}", json={**SHOP, **fields})


async def test_an_endpoint_is_put_shown_listed_and_archived(http):
    told = (await put(http, headers={"X-Team": "stock"}, min_interval="1m")).json()
    shown = (await http.get("/v1/endpoints/shop")).json()

    assert told["says"] == "5m after the start of each run" and len(told["next"]) == 10
    assert (told["next_at"], told["source"]) == (shown["next_at"], "baseline-interval")
    assert shown["headers"] == {"X-Team": "stock"} and shown["candidates"] == [["baseline-interval", shown["next_at"]]]
    assert {name: shown[name] for name in SHOP} == SHOP
    assert [one["name"] for one in (await http.get("/v1/endpoints?group=shops")).json()["endpoints"]] == ["shop"]
    assert [(await http.post("/v1/endpoints/shop/archive")).status_code for _ in range(2)] == [204, 204]
    assert (await http.get("/v1/endpoints")).json()["endpoints"] == []
    assert (await http.get("/v1/endpoints?archived=true")).json()["endpoints"][0]["archived"] is True
    assert (await put(http)).status_code == 200
    assert (await http.get("/v1/endpoints")).json()["endpoints"][0]["name"] == "shop"


async def test_endpoints_are_listed_in_pages(http):
    wanted = {f"e{number}": SHOP for number in range(5)}
    assert sorted((await http.put("/v1/endpoints", json={"endpoints": wanted})).json()["endpoints"]) == sorted(wanted)
    first = (await http.get("/v1/endpoints?limit=3")).json()
    rest = (await http.get(f"/v1/endpoints?limit=3&cursor={first['next']}")).json()

    assert [one["name"] for one in first["endpoints"] + rest["endpoints"]] == sorted(wanted) and "next" not in rest


async def test_a_set_is_all_or_none(http):
    wanted = {"good": SHOP, "worse": {**SHOP, "min_interval": "2h", "max_interval": "1h"}}
    answer = await http.put("/v1/endpoints", json={"endpoints": wanted})

    assert answer.status_code == 422
    assert (answer.json()["code"], answer.json()["path"]) == ("min_above_max", "endpoints.worse.min_interval")
    assert (await http.get("/v1/endpoints")).json()["endpoints"] == []


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://10.1.2.3/x", "private"),
        ("http://127.0.0.1:9000/x", "loopback"),
        ("http://[::1]/x", "loopback"),
        ("http://169.254.169.254/latest", "link-local"),
        ("http://2130706433/x", "number"),
        ("http://metadata.google.internal/x", "metadata service"),
        ("https://shop.example/x", ""),
        ("https://93.184.216.34/x", ""),
    ],
)
async def test_an_address_that_workers_refuse_is_warned_of(http, url, warned):
    told = (await put(http, url=url)).json()

    found = [one["text"] for one in told.get("warnings", []) if one["code"] == "address_refused"]
    assert (warned in found[0]) if warned else found == []


async def test_it_is_run_tested_and_its_calls_are_read(http):
    await put(http)
    worker = Worker(http)
    run_id = (await http.post("/v1/endpoints/shop/trigger")).json()["run_id"]
    [work] = await worker.work()
    running = (await http.get("/v1/endpoints/shop/runs")).json()["runs"][0]
    await worker.finish(work, value={"status": 201, "body": {"queue": 3}, "cut": False, "duration_ms": 12})
    test_id = (await http.post("/v1/endpoints/shop/test", json={})).json()["run_id"]
    [work] = await worker.work()
    await worker.fail(work, error="ConnectError", message="nobody there")

    assert (running["id"], running["state"], running["attempt"]) == (run_id, "active", 1)
    test, run = (await http.get("/v1/endpoints/shop/runs")).json()["runs"]
    assert (run["source"], run["status"], run["duration_ms"], run["body"]) == ("trigger", 201, 12, {"queue": 3})
    assert (test["id"], test["source"], test["state"]) == (test_id, "test", "failed")
    assert (test["error"], test["message"], "status" in test) == ("ConnectError", "nobody there", False)
    first = (await http.get("/v1/endpoints/shop/runs?limit=1")).json()
    rest = (await http.get(f"/v1/endpoints/shop/runs?limit=1&cursor={first['next']}")).json()
    assert [one["id"] for one in first["runs"] + rest["runs"]] == [test_id, run_id]
    failed = (await http.get("/v1/endpoints/shop/runs?state=failed")).json()["runs"]
    assert [one["id"] for one in failed] == [test_id]
    assert (await http.get("/v1/endpoints/shop")).json()["last"]["id"] == run_id


async def test_it_is_paused_advised_and_reset(http):
    await put(http)
    assert (await http.post("/v1/endpoints/shop/pause", json={"until": "2200-01-01T00:00:00Z"})).status_code == 204
    shown = (await http.get("/v1/endpoints/shop")).json()
    assert (shown["next_at"], shown["source"]) == ("2200-01-01T00:00:00Z", "paused")
    assert (await http.post("/v1/endpoints/shop/resume")).status_code == 204
    assert (await http.post("/v1/endpoints/shop/resume")).status_code == 409
    hinted = await http.put("/v1/endpoints/shop/hints", json={"interval": "10s", "reason": "busy", "cost": 4})
    assert hinted.json()["hints"]["reason"] == "busy" and hinted.json()["source"] == "ai-interval"
    assert "hints" not in (await http.delete("/v1/endpoints/shop/hints")).json()
    assert (await http.post("/v1/endpoints/shop/reset_failures")).status_code == 204
    assert (await http.post("/v1/groups/shops/pause", json={})).status_code == 204
    assert (await http.get("/v1/endpoints/shop")).json()["paused"] is True


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None), ("POST", "/archive", {}), ("POST", "/restore", {}), ("POST", "/trigger", {}),
        ("POST", "/test", {}), ("POST", "/pause", {}),
        ("POST", "/resume", {}), ("POST", "/reset_failures", {}), ("PUT", "/hints", {"interval": "1m"}),
        ("DELETE", "/hints", None), ("GET", "/runs", None),
    ],
)  # fmt: skip
async def test_what_is_no_endpoint_is_not_found(http, method, path, body):
    await publish(http, flow(), schedules={"often": {"workflow": "greet", "every": "1h"}})
    for name in ("nobody", "often"):
        answer = await http.request(method, f"/v1/endpoints/{name}{path}", json=body)

        assert (answer.status_code, answer.json()["code"]) == (404, "unknown_endpoint")
