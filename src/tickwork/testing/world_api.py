"""The API that the code of tasks reads in a world: the real application, called in this process."""

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tickwork.api.app import make_app
from tickwork.core.base.errors import Refused
from tickwork.protocol.worker_messages import Reading, ReadRequest

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from tickwork.runtime.engine import Engine


class WorldApi:
    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._app: Starlette | None = None

    def read(self, request: ReadRequest) -> Reading:
        """At once, because a plain function runs while the world stands still. A store in memory never waits."""
        reading = self.read_async(request)
        try:
            reading.send(None)
        except StopIteration as end:
            answer: Reading = end.value
            return answer
        reading.close()
        raise Refused("would_wait", "in a world a plain function cannot wait for what it reads; use ctx.async_client()")

    async def read_async(self, request: ReadRequest) -> Reading:
        self._app = self._app or make_app(self._engine)
        path, _, query = request.target.partition("?")
        headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request.headers]
        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": unquote(path), "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [*headers, (b"host", b"127.0.0.1")], "client": None, "server": None, "state": {},
        }  # fmt: skip
        answer = _Answer()
        await self._app(scope, answer.receive, answer.send)
        return Reading(answer.status, tuple(answer.headers), bytes(answer.body))


class _Answer:
    def __init__(self) -> None:
        self.status, self.headers, self.body = 500, list[tuple[str, str]](), bytearray()

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            self.body += message.get("body", b"")
