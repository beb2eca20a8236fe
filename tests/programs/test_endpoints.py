"""Programs around endpoints, against a web server on loopback."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tickwork as tw

WAIT_S = 60.0


class Shop:
    """Answers each path with its figures, and counts the requests."""

    def __init__(self):
        self.figures, self.requests = {}, Counter()
        shop = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.strip("/")
                shop.requests[name] += 1
                body = json.dumps(shop.figures.get(name, {})).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                self.do_GET()

            def log_message(self, *args):
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server.server_port}"


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass in time"
        time.sleep(0.02)


@pytest.fixture
def sale(program, tmp_path):
    module = program("flash_sale")
    with Shop() as shop, tw.embedded(workflows=(), data=tmp_path / "data") as client:
        module.set_up(client, shop.url)
        yield module, shop, client


def look(module, client):
    """Call each monitor once."""
    for run in [client.trigger_endpoint(name) for name in module.MONITORS]:
        client.wait(run, timeout=WAIT_S)


def test_a_planner_gives_hints_to_ten_endpoints(sale):
    module, shop, client = sale
    assert len(client.endpoints()) == 10
    shop.figures = {"traffic": {"visits_per_s": 40}, "pages": {"p95_ms": 200}}
    look(module, client)
    assert module.plan(client) == []

    shop.figures = {"traffic": {"visits_per_s": 900}, "pages": {"p95_ms": 2_500}, "payments": {"failed_percent": 1}}
    look(module, client)
    advice = module.plan(client)

    assert [text.partition(";")[0] for text in advice] == ["traffic: visits_per_s is 900", "pages: p95_ms is 2500"]
    monitors = client.endpoints(group="monitors")
    hints = {endpoint.name: endpoint.hints.interval for endpoint in monitors if endpoint.hints}
    assert hints == dict.fromkeys(("traffic", "pages", "orders", "stock", "cache"), "20s")
    until(lambda: shop.requests["scale_up"] == shop.requests["warm_cache"] == 1)
    [run] = client.endpoint_runs("scale_up")
    assert (run.source, shop.requests["drain_orders"], shop.requests["call_a_person"]) == ("ai-oneshot", 0, 0)


def test_an_action_rests_before_it_is_taken_again(sale):
    module, shop, client = sale
    shop.figures = {"payments": {"failed_percent": 30}}
    look(module, client)
    [first] = module.plan(client)
    until(lambda: shop.requests["call_a_person"] == 1)
    until(lambda: not client.endpoint("call_a_person").running)
    [again] = module.plan(client)

    assert first.endswith("do call_a_person") and again.endswith("do nothing")
