"""The way to the server: what goes out, and what every kind of answer becomes."""

import httpx2
import msgspec
import pytest

from tickwork.core.base.errors import Conflict, Refused, Unavailable
from tickwork.ports.artifacts import digest_of
from tickwork.protocol.http_models import ScheduleRequest
from tickwork.protocol.worker_messages import (
    Call,
    Catalog,
    DeclaredSchedule,
    LogPiece,
    Reply,
    Succeeded,
    call_decoder,
    encoder,
)
from tickwork.worker.http_link import HttpLink


class Door:
    def __init__(self, answer=None) -> None:
        self.requests: list[httpx2.Request] = []
        self.answer = answer or httpx2.Response(204)

    def link(self, **options) -> HttpLink:
        return HttpLink("http://server.test/", transport=httpx2.MockTransport(self.handle), **options)

    def handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_an_exchange_is_messagepack_both_ways():
    door = Door(httpx2.Response(200, content=encoder.encode(Reply(7, stop=((1, 2),)))))
    link = door.link(token="t0ken")
    call = Call("w 1/x", "s", 7, 4, 10_000, (Succeeded(1, 1, b"\x01"),))

    assert await link.call(call) == Reply(7, stop=((1, 2),))
    (request,) = door.requests
    assert request.url.raw_path == b"/v1/workers/w%201%2Fx/exchange" and call_decoder.decode(request.content) == call
    assert request.headers["authorization"] == "Bearer t0ken"
    await link.close()


async def test_artifacts_logs_and_publication_go_where_the_api_has_them():
    door = Door()
    link = door.link()
    digest = await link.store(b"data")
    await link.log(LogPiece(5, 2, 1, 40, b'{"text":"x"}\n', "r 1", "w é", "s1", "the-store"))
    wanted = ScheduleRequest(workflow="flow", cron="0 9 * * *", overlap="forbid")
    timetables = (
        DeclaredSchedule("daily", wanted),
        DeclaredSchedule("often", ScheduleRequest(workflow="flow", every="90s")),
    )
    await link.publish(Catalog((b'{"name":"flow"}',), timetables, ("noop",), "app"))

    assert digest == digest_of(b"data")
    assert [(one.method, one.url.raw_path.decode()) for one in door.requests] == [
        ("PUT", f"/v1/artifacts/{digest}"),
        ("POST", "/v1/tasks/5/attempts/2/logs?chunk=1&first=40&run=r%201"),
        ("PUT", "/v1/workflows"),
    ]
    sender = [door.requests[1].headers[f"x-tickwork-{name}"] for name in ("worker", "session", "store")]
    assert sender == ["w%20%C3%A9", "s1", "the-store"]
    assert msgspec.json.decode(door.requests[2].content) == {
        "documents": [{"name": "flow"}],
        "schedules": {
            "daily": {"workflow": "flow", "cron": "0 9 * * *", "overlap": "forbid"},
            "often": {"workflow": "flow", "every": "90s"},
        },
        "application": "app",
    }
    await link.close()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx2.ConnectError("refused"), Unavailable),
        (httpx2.ReadTimeout("slow"), Unavailable),
        (httpx2.Response(503), Unavailable),
        (httpx2.Response(429), Unavailable),
        (httpx2.Response(200, content=b"<html>"), Unavailable),
        (httpx2.Response(401, json={"title": "no", "status": 401, "code": "token"}), Refused),
        (httpx2.Response(404, json={"title": "none", "status": 404, "code": "unknown"}), Refused),
        (httpx2.Response(409, json={"title": "moved", "status": 409, "code": "conflict"}), Conflict),
    ],
)
async def test_every_kind_of_trouble_has_one_of_three_names(answer, error):
    link = Door(answer).link()

    with pytest.raises(error):
        await link.call(Call("w1", "s", 1))
    await link.close()


@pytest.mark.parametrize(
    ("status", "code", "path", "kind", "said"),
    [
        (404, "unknown_queue", "schedules.daily.queue", Refused, "app.py:7: @tw.workflow"),  # the line in question
        (422, "bad_document", "documents[0]", Refused, "no"),
        (409, "catching_up", "schedules.daily.schedule", Unavailable, "no"),  # over in a moment: the agent asks again
        (409, "resume_first", "schedules.daily.schedule", Conflict, "no"),  # somebody has to do something
    ],
)
async def test_what_is_refused_about_a_schedule_shows_where_it_is_written(status, code, path, kind, said):
    problem = {"title": "t", "status": status, "code": code, "detail": "no", "path": path}
    link = Door(httpx2.Response(status, json=problem)).link()
    table = DeclaredSchedule("daily", ScheduleRequest(workflow="flow", every="1h"), "app.py:7: @tw.workflow")

    with pytest.raises(kind, match=said):
        await link.publish(Catalog((), (table,), (), "app"))
    await link.close()
