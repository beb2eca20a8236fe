"""A small server on this machine that answers as the API will, and can be told to misbehave."""

import asyncio
import json
import socket
import threading
from collections import deque

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

RUN = {
    "workflow": "daily",
    "definition": "sha256:1",
    "source": "api",
    "by": "me",
    "submitted_at": "2026-01-02T03:04:05Z",
}


class Loopback:
    """A real server for one fake after the other: starting and stopping it takes longer than most tests."""

    def __init__(self):
        self.fake = None
        app = Starlette(routes=[Route("/{path:path}", self.handle, methods=["GET", "POST", "PUT", "DELETE"])])
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        config = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()

    async def handle(self, request: Request) -> Response:
        return await self.fake.handle(request)

    def close(self):
        self.server.should_exit = True
        self.thread.join(10)
        self.listener.close()


class FakeServer:
    """`faults` are taken one per request: a status to answer with, or "late" to do the work and lose the answer."""

    def __init__(self, loopback: Loopback):
        self.url, loopback.fake = loopback.url, self
        self.runs: dict[str, dict] = {}
        self.outputs: dict[str, object] = {}
        self.seen: list[tuple[str, str, dict]] = []
        self.keys: dict[str, Response] = {}
        self.faults: deque = deque()
        self.stream = True
        self.cut_streams = 0  # so many streams end after their first event
        self.log = [f"line {number}" for number in range(5)]
        self.log_openings: list[str] = []

    async def handle(self, request: Request) -> Response:
        body = await request.body()
        self.seen.append((request.method, str(request.url.path), dict(request.headers)))
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, int):
            return problem(fault, f"fault_{fault}", "as you wished", headers={"Retry-After": "0"})
        key = request.headers.get("idempotency-key")
        if key in self.keys:
            return self.keys[key]
        answer = self.route(request, json.loads(body) if body else None)
        if key:
            self.keys[key] = answer
        if fault == "late":
            return problem(504, "gateway_timeout", "the answer was lost on its way")
        return answer

    def route(self, request: Request, body) -> Response:
        parts = request.url.path.strip("/").split("/")[1:]
        match [request.method, *parts]:
            case ["POST", "runs"]:
                return JSONResponse(self.submit(body))
            case ["POST", "runs", "batch"]:
                return JSONResponse({"runs": [self.submit(one) for one in body["runs"]]})
            case ["GET", "runs"]:
                return self.page(request.query_params)
            case ["GET", "runs", run_id, *_] if run_id not in self.runs:
                return problem(404, "no_such_run", f"there is no run {run_id}")
            case ["GET", "runs", run_id]:
                run = self.runs[run_id]
                if run["polls"] == 0:
                    run["state"] = run["end"]
                run["polls"] -= 1
                return JSONResponse({name: value for name, value in run.items() if name not in ("polls", "end")})
            case ["GET", "runs", run_id, "output"]:
                return JSONResponse(self.outputs[run_id])
            case ["GET", "runs", run_id, "events"]:
                if not self.stream:
                    return problem(404, "no_such_route", "nothing here")
                return StreamingResponse(self.changes(run_id), media_type="text/event-stream")
            case ["GET", "runs", _, "logs"]:
                return self.logs(request)
            case ["GET", "runs", run_id, "why"]:
                return JSONResponse({"run": run_id, "state": "waiting", "waiting_for": ["a worker"]})
            case ["GET", "workflows"]:
                return JSONResponse([{"name": "daily", "definition": "sha256:1"}])
            case ["GET", "workers"]:
                return JSONResponse({"workers": [{"id": "w", "queues": ["default"], "credit": 1, "running": 0}]})
            case ["POST", "runs", run_id, "rerun"]:
                return JSONResponse({"id": f"{run_id}-again"})
        self.last = (request.method, request.url.path, body)
        return JSONResponse({})

    def submit(self, body) -> dict:
        if body["inputs"].get("n") == -1:
            return {"code": "bad_inputs", "detail": "n is negative"}
        name = body.get("key") or f"r{len(self.runs)}"
        known = name in self.runs
        given = body["inputs"]
        fresh = {**RUN, "id": name, "state": "active", "inputs": given, "output": given, "polls": 2, "end": "completed"}
        self.runs.setdefault(name, fresh)
        self.submission = body
        return {"id": name, "duplicate": True} if known else {"id": name}

    def page(self, query) -> Response:
        names = [name for name in self.runs if not query.get("state") or self.runs[name]["state"] in query["state"]]
        start, size = int(query.get("cursor", 0)), int(query["limit"])
        runs = [
            {name: run[name] for name in (*RUN, "id", "state")}
            for run in map(self.runs.get, names[start : start + size])
        ]
        more = {"next": str(start + size)} if start + size < len(names) else {}
        return JSONResponse({"runs": runs, **more})

    async def changes(self, run_id):
        run = {name: self.runs[run_id][name] for name in (*RUN, "id")}
        yield ": welcome\n\n"
        yield f"event: run\ndata: {json.dumps({**run, 'state': 'active'})}\n\n"
        if self.cut_streams:
            self.cut_streams -= 1
            return
        while self.runs[run_id]["end"] == "never":
            yield ": still here\n\n"
            await asyncio.sleep(0.02)
        self.runs[run_id]["polls"] = 0
        yield f"id: 7\nevent: run\ndata: {json.dumps({**run, 'state': self.runs[run_id]['end']})}\n\n"

    def logs(self, request: Request) -> Response:
        def line(number):
            facts = {"at": "2026-01-02T03:04:05Z", "task": "1", "node": "n", "attempt": 1, "stream": "stdout"}
            return json.dumps({**facts, "text": self.log[number]})

        if "follow" not in request.query_params:
            return Response("\n".join(map(line, range(len(self.log)))), media_type="application/x-ndjson")
        after = request.headers.get("last-event-id", "")
        self.log_openings.append(after)

        async def lines():
            for number in range(int(after or -1) + 1, len(self.log)):
                yield f"id: {number}\ndata: {line(number)}\n\n"
                if number == 1 and not after:
                    raise RuntimeError("the server stops in the middle")

        return StreamingResponse(lines(), media_type="text/event-stream")


def problem(status: int, code: str, detail: str, **more) -> Response:
    body = {"title": code, "status": status, "code": code, "detail": detail}
    return JSONResponse(body, status_code=status, media_type="application/problem+json", **more)
