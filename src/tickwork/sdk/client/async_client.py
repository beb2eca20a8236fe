"""The asynchronous client; see `client.py`. Time is the event loop's, so it runs on a simulated one too."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import httpx2
import msgspec

from tickwork.core.base.errors import TickworkError, Unavailable
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import shown
from tickwork.sdk.authoring.app_loader import App
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import calls
from tickwork.sdk.client.async_schedule_client import AsyncSchedulesClient
from tickwork.sdk.client.calls import ApiCall, Handle, RunLike
from tickwork.sdk.client.connection import (
    BUSY_S,
    STREAM_SILENCE_S,
    Address,
    Backoff,
    Event,
    EventReader,
    NoStream,
    Stores,
    check_stream,
    may_have_arrived,
    stream_error,
    stream_headers,
    unreachable,
)
from tickwork.sdk.client.requests import AsyncEndpointsClient

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient(AsyncSchedulesClient, AsyncEndpointsClient):
    """Talks to a server from asynchronous code. Close it, or use it in an `async with`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        deadline: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`url` and `token`, or TICKWORK_URL and TICKWORK_TOKEN (or TICKWORK_TOKEN_FILE), or this machine."""
        self.address = Address.of(url, token)
        self._at = 0  # of its addresses
        self._stores = Stores()
        self._deadline_s = deadline
        self._http = httpx2.AsyncClient(
            headers=self.address.headers(),
            auth=self.address.auth(),
            timeout=httpx2.Timeout(30.0, connect=5.0),
            trust_env=not self.address.local,  # no proxy stands before this machine itself
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends its connections."""
        await self._http.aclose()

    # ---- runs

    async def submit(
        self,
        workflow: Workflow[..., R] | str,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        key: str = "",
        id: str = "",  # noqa: A002 - the field's name
        delay: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        priority: int | None = None,
        app_version: str = "",
        **values: Any,
    ) -> Handle[R]:
        """Starts a run; durable when it returns. Inputs by name, or as one mapping; they are checked first.

        The same `key` gives the same run for 24 hours.
        """
        submission = calls.submission(
            workflow,
            inputs,
            values,
            key=key,
            id=id,
            delay=delay,
            start_at=start_at,
            priority=priority,
            app_version=app_version,
        )
        answer = await self._ask(calls.submit(submission))
        return Handle(answer.id, answer.duplicate, None if isinstance(workflow, str) else workflow)

    async def submit_many(
        self,
        workflow: Workflow[..., R] | str,
        rows: Iterable[Mapping[str, Any]],
        /,
        *,
        keys: Iterable[str] | None = None,
        priority: int | None = None,
    ) -> list[Handle[R]]:
        """A run for each row of inputs, a thousand per call. Raises `BatchRefused` where some were refused."""
        answers: list[wire.Submitted | wire.Rejected] = []
        for batch in calls.batches(calls.submissions(workflow, rows, keys, priority)):
            answers += calls.batch_answer(await self._ask(calls.submit_batch(batch)))
        return calls.settle(answers, workflow)

    async def get(self, run: RunLike) -> wire.RunDetail:
        """A run with its tasks, inputs and output."""
        return await self._ask(calls.get(run))

    async def wait(self, run: RunLike, *, timeout: float | None = None) -> wire.RunDetail:
        """The run when it has ended, however it ended. Raises `StillRunning` after `timeout` seconds."""
        async with aclosing(self.watch(run, timeout=timeout)) as changes:
            async for _ in changes:
                pass
        return await self.get(run)

    async def watch(self, run: RunLike, *, timeout: float | None = None) -> AsyncGenerator[wire.Run, None]:
        """The run each time it has changed, until it has ended."""
        patience = Backoff(now_s=self._now(), within_s=timeout)
        streaming, seen = True, None
        state: wire.Run
        while True:
            if streaming:
                try:
                    async with aclosing(self._events(run, patience)) as changes:
                        async for state in changes:
                            yield state
                            if state.state in calls.ENDED:
                                return
                except NoStream:
                    streaming = False
            state = await self._ask(calls.get(run), within_s=patience.left_s(self._now()))
            if state != seen:
                yield state
                seen = state
            if state.state in calls.ENDED:
                return
            pause = patience.pause_s(self._now(), cap_s=2.0)
            if pause is None:
                raise calls.still_running(state)
            await asyncio.sleep(pause)

    @overload
    async def result(self, run: Handle[R], *, timeout: float | None = None) -> R: ...
    @overload
    async def result(self, run: RunLike, *, timeout: float | None = None) -> Any: ...
    async def result(self, run: RunLike, *, timeout: float | None = None) -> Any:
        """The output of a run, waited for, as the type that the workflow says. Raises `RunFailed`."""
        workflow = run.workflow if isinstance(run, Handle) else None
        ended = await self.wait(run, timeout=timeout)
        if calls.is_left_out(ended):
            ended = msgspec.structs.replace(ended, output=await self._ask(calls.output(run)))
        return calls.typed_output(ended, workflow)

    async def list(
        self, workflow: Workflow[..., Any] | str = "", *, state: str | Iterable[str] = (), page_size: int = 100
    ) -> AsyncIterator[wire.Run]:
        """Runs, newest first; further pages are fetched on the way."""
        cursor = ""
        while True:
            page = await self._ask(calls.page_of(workflow, state, cursor, page_size))
            for run in page.runs:
                yield run
            if not page.next:
                return
            cursor = page.next

    async def cancel(self, run: RunLike, *, reason: str = "") -> None:
        """Ends a run; what is running of it is stopped."""
        await self._ask(calls.cancel(run, reason))

    async def partition(self, partition: int) -> wire.PartitionHead:
        """Where a partition stands."""
        return await self._ask(calls.partition(partition))

    async def pause_partition(self, partition: int, *, reason: str = "") -> None:
        """Lets nothing of a partition be given to workers; what runs goes on."""
        await self._ask(calls.partition_deed(partition, "pause", reason))

    async def resume_partition(self, partition: int) -> None:
        """Lets the work of a partition be given to workers again."""
        await self._ask(calls.partition_deed(partition, "resume"))

    async def pause(self, run: RunLike, *, reason: str = "", until: datetime | str | None = None) -> None:
        """Starts nothing more of it until it is resumed, or `until` has come."""
        await self._ask(calls.pause(run, reason, until))

    async def resume(self, run: RunLike, *, reason: str = "") -> None:
        """Goes on with a paused run."""
        await self._ask(calls.resume(run, reason))

    async def retry(self, run: RunLike, *, reason: str = "") -> None:
        """Tries again whatever failed in a failed run."""
        await self._ask(calls.retry(run, reason))

    async def resolve(
        self, run: RunLike, decisions: Mapping[str, str], *, values: Mapping[str, Any] | None = None, reason: str = ""
    ) -> None:
        """Decides about each failed node: retry, accept (with a value) or skip."""
        await self._ask(calls.resolve(run, decisions, values or {}, reason))

    async def rerun(
        self,
        run: RunLike,
        *,
        from_node: str = "",
        from_start: bool = False,
        definition: str = "",
        inputs: Mapping[str, Any] | None = None,
    ) -> Handle[Any]:
        """A new run like an ended one. Of a completed run everything runs, of another one what did not end well.

        `from_node` keeps the results before that node; `from_start` keeps none. With another `definition` or other
        `inputs`, what reads them runs too.
        """
        answer = await self._ask(calls.rerun(run, from_node, definition, inputs, from_start=from_start))
        return Handle(answer.id, answer.duplicate, run.workflow if isinstance(run, Handle) else None)

    async def approve(self, run: RunLike, node: str, *, comment: str = "") -> None:
        """Lets an approval pass."""
        await self._ask(calls.decide(run, node, approve=True, comment=comment))

    async def reject(self, run: RunLike, node: str, *, comment: str = "") -> None:
        """Refuses an approval."""
        await self._ask(calls.decide(run, node, approve=False, comment=comment))

    async def signal(self, event: str, payload: Any = None, *, key: str = "", run: RunLike | None = None) -> int:
        """Tells an event to all that wait for its name and key, and gives how many did; or to one run, which keeps it
        until it waits for it."""
        return (await self._ask(calls.signal(event, payload, key=key, run=run))).waiting

    async def why(self, run: RunLike) -> wire.Why:
        """What was decided about a run, and what it waits for."""
        return await self._ask(calls.why(run))

    async def logs(self, run: RunLike, *, follow: bool = False) -> AsyncIterator[wire.LogLine]:
        """The lines of a run's tasks; with `follow` also those to come, until the run has ended."""
        if not follow:
            for line in calls.log_lines(await self._ask(calls.logs(run))):
                yield line
            return
        patience, last = Backoff(now_s=self._now(), within_s=self._deadline_s), ""
        while True:
            try:
                async with self._stream(calls.logs_path(run), last, {"follow": "true"}, None) as events:
                    async for event in events:
                        if event is not None:
                            last = event.id or last
                            patience = Backoff(now_s=self._now(), within_s=self._deadline_s)
                            yield msgspec.json.decode(event.data, type=wire.LogLine)
                return
            except (httpx2.TransportError, Unavailable) as error:
                self._go_on_from(self._url)
                await self._rest(patience, error)

    # ---- what is there

    async def publish(self, *things: Workflow[..., Any] | App) -> None:
        """Makes workflows and their schedules known to the server, all or none."""
        catalog = calls.published(things)
        with shown(catalog.schedules):
            await self._ask(calls.publish(catalog))

    async def workflows(self) -> Sequence[wire.Workflow]:
        """All workflows."""
        return await self._ask(calls.workflows())

    async def workflow(self, name: str) -> wire.WorkflowDetail:
        """One workflow with its document."""
        return await self._ask(calls.workflow(name))

    async def list_application_versions(self, application: str = "") -> Sequence[wire.AppVersion]:
        """The versions of all applications or of one, newest first."""
        return await self._ask(calls.versions(application))

    async def latest_application_version(self, application: str = "") -> wire.AppVersion:
        """The one whose definitions new and scheduled runs get. `application` may be left out if there is one only."""
        return await self._ask(calls.latest_version(application))

    async def set_latest_application_version(self, version: str, *, application: str = "") -> wire.AppVersion:
        """Makes a version the latest: its definitions and schedules are the application's from now on."""
        return await self._ask(calls.set_latest_version(version, application))

    async def workers(self) -> Sequence[wire.Worker]:
        """The workers that the server knows."""
        return await self._ask(calls.workers())

    async def queues(self) -> Sequence[wire.Queue]:
        """The queues, with what waits and runs in each."""
        return await self._ask(calls.queues())

    async def put_queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        rate: int | None = None,
        per: str | timedelta = "1s",
        burst: int | None = None,
        window: str = "bucket",
    ) -> None:
        """Declares a queue, or replaces its limits: so many tasks at once, so many starts per time. With
        `window="sliding"` no stretch of that time has more starts; a bucket lets `burst` of them start after a rest."""
        await self._ask(calls.put_queue(name, limit, rate, per, burst, window))

    async def pause_queue(self, name: str, *, reason: str = "") -> None:
        """Lets no task of a queue start."""
        await self._ask(calls.queue_deed(name, "pause", reason))

    async def resume_queue(self, name: str) -> None:
        """Lets the tasks of a queue start again."""
        await self._ask(calls.queue_deed(name, "resume"))

    async def status(self) -> wire.Status:
        """How the engine is."""
        return await self._ask(calls.status())

    async def confirm_clock(self) -> None:
        """Believe the server's wall clock: a step of it that is held (`status().clock`) is adopted now."""
        await self._ask(calls.confirm_clock())

    async def alive(self) -> bool:
        """Whether a server answers at all; asked once."""
        for url in self.address.urls:
            with suppress(httpx2.TransportError):
                if (await self._http.get(f"{url}/healthz")).status_code < 500:
                    return True
        return False

    async def cluster(self) -> wire.Cluster:
        """Nodes, partitions and their owners."""
        return await self._ask(calls.cluster())

    async def spread(self, partitions: int) -> None:
        """Place new runs in so many partitions of the cluster. It can only grow."""
        await self._ask(calls.spread(partitions))

    async def inbox(self) -> wire.HeldRuns:
        """Runs that were accepted while their partition had no owner, and are refused by it. They are kept."""
        return await self._ask(calls.inbox())

    async def remove_from_inbox(self, run_id: str) -> None:
        """Give up on such a run for good."""
        await self._ask(calls.remove_from_inbox(run_id))

    # ---- the network

    async def _ask(self, ask: ApiCall[T], *, within_s: float | None = None) -> T:
        busy_s = BUSY_S if within_s is None else 0.0
        within_s = self._deadline_s if within_s is None else min(within_s, self._deadline_s)
        patience = Backoff(now_s=self._now(), within_s=within_s, busy_s=busy_s)
        headers, doubt = ask.headers() | self._stores.headers(ask.path, ask.run), False
        while True:
            url = self._url
            try:
                answer = await self._http.request(
                    ask.method, url + ask.path, params=ask.query, content=ask.body, headers=headers
                )
                self._stores.check(ask.path, answer.status_code, answer.headers, ask.run)
                reply = ask.read(answer.status_code, answer.headers, answer.content)
                self._stores.submitted(ask.path, reply, answer.headers)
                return reply
            except (httpx2.TransportError, Unavailable) as error:
                self._go_on_from(url)
                doubt = doubt or may_have_arrived(error)
                last = ask.unknown(error) if doubt else error
                if ask.once and last is not error:
                    raise last from error
                await self._rest(patience, error, last)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _rest(self, patience: Backoff, error: Exception, last: Exception | None = None) -> None:
        """`last` is what is raised where the time is over."""
        at_least_ms = error.retry_after_ms if isinstance(error, Unavailable) else 0
        pause = patience.pause_s(self._now(), at_least_ms=at_least_ms, answered=isinstance(error, Unavailable))
        if pause is None:
            raise unreachable(self.address, last or error) from error
        await asyncio.sleep(pause)

    async def _events(self, run: RunLike, patience: Backoff) -> AsyncGenerator[wire.Run, None]:
        """From one opening of the stream; ends where the connection does. Raises `NoStream` where there is none."""
        try:
            left = patience.left_s(self._now())
            async with self._stream(calls.events_path(run), "", {}, left) as events:
                async for event in events:
                    if patience.left_s(self._now()) == 0.0:
                        return
                    if event is not None and event.event == "run":
                        yield msgspec.json.decode(event.data, type=wire.Run)
        except (httpx2.TransportError, Unavailable):
            self._go_on_from(self._url)
            return  # the caller asks for the run itself, and opens the stream again

    @property
    def _url(self) -> str:
        return self.address.urls[self._at]

    def _go_on_from(self, url: str) -> None:
        """The next address, once where several calls to one fail together."""
        if url == self._url:
            self._at = (self._at + 1) % len(self.address.urls)

    def _stream(self, path: str, last: str, query: dict[str, str], left_s: float | None) -> "_Stream":
        def check(answer: httpx2.Response) -> None:
            self._stores.check(path, answer.status_code, answer.headers)

        return _Stream(self._http, self._url + path, stream_headers(last), query, left_s, check)


class _Stream:
    """Server-sent events from one request."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        path: str,
        headers: dict[str, str],
        query: dict[str, str],
        left_s: float | None,
        check: Callable[[httpx2.Response], None],
    ) -> None:
        self._check = check
        silence = STREAM_SILENCE_S if left_s is None else min(STREAM_SILENCE_S, max(left_s, 0.001))
        timeout = httpx2.Timeout(30.0, connect=5.0, read=silence)
        self._opening = http.stream("GET", path, params=query, headers=headers, timeout=timeout)

    async def __aenter__(self) -> AsyncIterator[Event | None]:
        answer = await self._opening.__aenter__()
        try:
            self._check(answer)
            if answer.status_code >= 300:
                raise stream_error(answer.status_code, answer.headers, await answer.aread())
            check_stream(answer.headers)
        except (TickworkError, NoStream, httpx2.TransportError):
            await self._opening.__aexit__(None, None, None)
            raise
        return self._events(answer)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._opening.__aexit__(kind, error, at)

    @staticmethod
    async def _events(answer: httpx2.Response) -> AsyncIterator[Event | None]:
        """None for a line that ends no event, so that whoever waits can look at the time."""
        reader = EventReader()
        async for line in answer.aiter_lines():
            yield reader.feed(line)
