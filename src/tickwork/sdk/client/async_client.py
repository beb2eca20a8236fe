"""The asynchronous client. Time is the event loop's, so it runs on a simulated one too.

Requests and responses are built and read in `calls`. If the server does not respond, or asks to try again, the client
repeats the call after growing pauses, until `deadline` seconds have passed.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar, overload

import httpx2
import msgspec

from tickwork.core.base.errors import Conflict, Refused, TickworkError, Unavailable
from tickwork.protocol import http_models as wire
from tickwork.protocol.worker_messages import shown
from tickwork.sdk.authoring.app_loader import App
from tickwork.sdk.authoring.durable import TaskWorkflow, as_workflow
from tickwork.sdk.authoring.tasks import Task
from tickwork.sdk.authoring.workflows import Workflow
from tickwork.sdk.client import calls
from tickwork.sdk.client.async_endpoint_client import AsyncEndpointsClient
from tickwork.sdk.client.async_operations_client import AsyncOperationsClient
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
from tickwork.sdk.client.operators.async_operator_client import AsyncOperatorsClient
from tickwork.sdk.client.submission_options import Options

T = TypeVar("T")
R = TypeVar("R")


class AsyncClient(AsyncOperationsClient, AsyncOperatorsClient, AsyncSchedulesClient, AsyncEndpointsClient):
    """Talks to a server from asynchronous code. Close it, or use it in an `async with`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        deadline: float = 30.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """`url` and `token` default to TICKWORK_URL and TICKWORK_TOKEN (or TICKWORK_TOKEN_FILE), then this machine."""
        self.address = Address.of(url, token)
        self._stores = Stores()
        self._deadline_s = deadline
        self._http = httpx2.AsyncClient(
            headers=self.address.headers(),
            auth=self.address.auth(),
            timeout=httpx2.Timeout(30.0, connect=5.0),
            trust_env=not self.address.local,  # a local server is never behind a proxy
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # ---- runs

    async def submit(
        self,
        workflow: Workflow[..., R] | Task[..., R] | str,
        inputs: Mapping[str, Any] | None = None,
        /,
        *,
        key: str = "",
        id: str = "",  # noqa: A002 - the field's name
        delay: str | timedelta | None = None,
        start_at: datetime | str | None = None,
        priority: int | None = None,
        debounce: str = "",
        at_most: str | timedelta | None = None,
        app_version: str = "",
        tags: Sequence[str] = (),
        options: Options | None = None,
        **values: Any,
    ) -> Handle[R]:
        """Start a run; it is durable when this returns. Inputs are given by name or as one mapping, and checked first.

        The same `key` returns the same run for 24 hours. A task runs as a workflow of its own. With `debounce`, a run
        that still waits for its `delay` takes the new inputs, and its delay starts over, up to `at_most` in total.
        """
        known = None if isinstance(workflow, str) else as_workflow(workflow)
        submission = calls.submission(
            known or str(workflow),
            inputs,
            values,
            key=key,
            id=id,
            delay=delay,
            start_at=start_at,
            priority=priority,
            debounce=debounce,
            at_most=at_most,
            app_version=app_version,
            tags=tags,
            options=options,
        )
        try:
            answer = await self._send(calls.submit(submission))
        except Refused as refused:
            if refused.code != "unknown_workflow" or not isinstance(known, TaskWorkflow):
                raise
            await self.publish(known)  # the first run of this task by itself
            answer = await self._send(calls.submit(submission))
        return Handle(answer.id, answer.duplicate, known, answer.warnings)

    async def submit_many(
        self,
        workflow: Workflow[..., R] | str,
        rows: Iterable[Mapping[str, Any]],
        /,
        *,
        keys: Iterable[str] | None = None,
        priority: int | None = None,
    ) -> list[Handle[R]]:
        """Start a run for each row of inputs, a thousand per call. Raises `BatchRefused` if any were refused."""
        answers: list[wire.Submitted | wire.Rejected] = []
        for batch in calls.batches(calls.submissions(workflow, rows, keys, priority)):
            answers += calls.batch_answer(await self._send(calls.submit_batch(batch)))
        return calls.settle(answers, workflow)

    async def get(self, run: RunLike, *, attempts: int | None = None, attempts_before: int = 0) -> wire.RunDetail:
        """Return a run with its tasks, inputs and output. Each task has its latest 100 attempts, or so many as you say;
        `attempts_before` is for the earlier ones: it shows attempts with smaller numbers."""
        return await self._send(calls.get(run, attempts=attempts, attempts_before=attempts_before))

    async def history(self, run: RunLike) -> wire.FunctionHistory:
        """What the durable function of a run has recorded, and what it waits for."""
        return await self._send(calls.history(run))

    async def recorded(self, run: RunLike) -> bytes | None:
        """The same in MessagePack, as a worker gets it; None where nothing is recorded. For `tickwork check`."""
        try:
            return await self._send(calls.recorded(run))
        except Refused as refused:
            if refused.code != "unknown_history":
                raise
            return None

    async def wait(self, run: RunLike, *, timeout: float | None = None) -> wire.RunDetail:
        """Wait until the run has ended, with any outcome. Raises `StillRunning` after `timeout` seconds."""
        async with aclosing(self.watch(run, timeout=timeout)) as changes:
            async for _ in changes:
                pass
        return await self.get(run)

    async def watch(self, run: RunLike, *, timeout: float | None = None) -> AsyncGenerator[wire.Run, None]:
        """Yield the run after each change, until it has ended."""
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
            state = await self._send(calls.get(run), within_s=patience.left_s(self._now()))
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
        """Wait for a run and return its output, in the type that the workflow declares. Raises `RunFailed`."""
        workflow = run.workflow if isinstance(run, Handle) else None
        ended = await self.wait(run, timeout=timeout)
        if calls.is_left_out(ended):
            ended = msgspec.structs.replace(ended, output=await self._send(calls.output(run)))
        return calls.typed_output(ended, workflow)

    async def cancel(self, run: RunLike, *, node: str = "", reason: str = "") -> None:
        """Cancel a run and stop its running tasks. With `node`, fail just this node; the run goes on by its rules."""
        if node:
            task = calls.task_of(await self.get(run), node)
            await self._send(calls.task_action(run, task, "cancel", reason))
        else:
            await self._send(calls.cancel(run, reason))

    async def pause(self, run: RunLike, *, reason: str = "", until: datetime | str | None = None) -> None:
        """Pause a run: start none of its tasks until it is resumed, or until `until`."""
        await self._send(calls.pause(run, reason, until))

    async def resume(self, run: RunLike, *, reason: str = "") -> None:
        """Resume a paused run."""
        await self._send(calls.resume(run, reason))

    async def retry(self, run: RunLike, *, node: str = "", reason: str = "") -> None:
        """Retry everything that failed in a failed run. With `node`, just this node, or its waiting retry now."""
        if node:
            task = calls.task_of(await self.get(run), node)
            await self._send(calls.task_action(run, task, "retry", reason))
        else:
            await self._send(calls.retry(run, reason))

    async def resolve(
        self, run: RunLike, decisions: Mapping[str, str], *, values: Mapping[str, Any] | None = None, reason: str = ""
    ) -> None:
        """Resolve each failed node: retry, accept (with a value) or skip."""
        await self._send(calls.resolve(run, decisions, values or {}, reason))

    async def rerun(
        self,
        run: RunLike,
        *,
        from_node: str = "",
        from_start: bool = False,
        definition: str = "",
        inputs: Mapping[str, Any] | None = None,
    ) -> Handle[Any]:
        """Run an ended run again, as a new run. A completed run repeats everything, any other what did not succeed.

        `from_node` keeps the results before that node; `from_start` keeps none. With another `definition` or other
        `inputs`, what reads them runs too.
        """
        answer = await self._send(calls.rerun(run, from_node, definition, inputs, from_start=from_start))
        return Handle(answer.id, answer.duplicate, run.workflow if isinstance(run, Handle) else None)

    async def approve(self, run: RunLike, node: str, *, comment: str = "") -> None:
        """Approve an approval node."""
        await self._send(calls.decide(run, node, approve=True, comment=comment))

    async def fill(
        self, run: RunLike, node: str, values: Mapping[str, Any] | None = None, /, *, comment: str = "", **fields: Any
    ) -> None:
        """Fill in a form that a run waits for: `client.fill(run, "review", approve=True, how="all")`."""
        await self._send(calls.decide(run, node, approve=True, comment=comment, values={**(values or {}), **fields}))

    async def reject(self, run: RunLike, node: str, *, comment: str = "") -> None:
        """Reject an approval node."""
        await self._send(calls.decide(run, node, approve=False, comment=comment))

    async def inbox(
        self, kinds: Sequence[str] = (), *, workflow: str = "", person: str = "", limit: int = 1_000
    ) -> Sequence[wire.InboxEntry]:
        """List what waits for a person: approvals and forms, paused runs, failed runs. `kinds` are "approval", "form",
        "paused" and "failed"; `person` leaves out what this one may not decide."""
        return await self._send(calls.inbox(kinds, workflow, person, limit))

    async def signal(self, event: str, payload: Any = None, *, key: str = "", run: RunLike | None = None) -> int:
        """Send an event to all runs that wait for its name and key, and return how many did. With `run`, send it to
        that run, which keeps it until it waits for it. With a mailbox of its name, one run takes it, now or later."""
        return (await self.send_event(event, payload, key=key, run=run)).waiting

    async def send_event(
        self,
        event: str,
        payload: Any = None,
        *,
        key: str = "",
        run: RunLike | None = None,
        id: str = "",  # noqa: A002 - the field's name
    ) -> wire.Heard:
        """Like `signal`; the answer also says how many schedules count the event, and whether a mailbox keeps it. With
        an `id`, a repeated event does nothing for a day."""
        return await self._send(calls.signal(event, payload, key=key, run=run, id=id))

    async def mailboxes(self) -> Sequence[wire.Mailbox]:
        """List the mailboxes, with what each keeps."""
        return await self._send(calls.mailboxes())

    async def mailbox_messages(
        self, mailbox: str, *, key: str = "", fate: str = "", limit: int = 100
    ) -> Sequence[wire.MailboxMessage]:
        """List the messages of a mailbox: kept ones in the order in which they are taken, then those that were taken,
        expired or refused, newest first."""
        return await self._send(calls.mailbox_messages(mailbox, key, fate, limit))

    async def delete_mailbox(self, mailbox: str) -> None:
        """Delete a mailbox that keeps no message: events of its name are no longer kept."""
        await self._send(calls.delete_mailbox(mailbox))

    async def read(self, run: RunLike, name: str) -> Any:
        """Return the value that the run has published last under this name."""
        return await self._send(calls.read(run, name))

    async def ask(
        self,
        run: RunLike,
        name: str,
        payload: Any = None,
        /,
        *,
        timeout: float = 10.0,
        key: str = "",
        start: Workflow[..., Any] | str | None = None,
        inputs: Mapping[str, Any] | None = None,
        **values: Any,
    ) -> Any:
        """Send an update to the run's durable function and return its reply. Raises `UpdateRefused` with the reason
        of a refusal, and `NoReply` after `timeout` seconds; the update still waits in the run then.

        The same `key` is the same update and gets the same reply. The payload is given by name or as one value. `start`
        starts this workflow with `inputs` under the run's id if there is no such run yet.
        """
        request = calls.update_request(payload, values, key)
        patience = Backoff(now_s=self._now(), within_s=timeout)
        while True:
            left_s = patience.left_s(self._now())
            try:
                result = await self._send(calls.ask(run, name, request, left_s=timeout if left_s is None else left_s))
            except Refused as refused:
                if start is None or refused.code != "unknown_run":
                    raise
                with suppress(Conflict):  # another program has started it meanwhile
                    await self.submit(start, inputs, id=calls.id_of(run))
                start = None
                continue
            if result.state != "waiting" or not patience.left_s(self._now()):
                return calls.reply_of(result)

    async def why(self, run: RunLike) -> wire.Why:
        """Explain a run: what was decided about it, and what it waits for."""
        return await self._send(calls.why(run))

    async def logs(self, run: RunLike, *, follow: bool = False) -> AsyncIterator[wire.LogLine]:
        """Iterate over the log lines of a run's tasks. With `follow`, continue until the run has ended."""
        if not follow:
            for line in calls.log_lines(await self._send(calls.logs(run))):
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

    async def stream(self, run: RunLike, *, node: str = "") -> AsyncIterator[wire.StreamPiece]:
        """What the run's tasks stream, from the beginning and as it comes, until the run has ended. A piece that is
        `dead` belongs to an attempt that ended without a result; where it has no number, that has just become known."""
        patience, last = Backoff(now_s=self._now(), within_s=self._deadline_s), ""
        query = {"node": node} if node else {}
        while True:
            try:
                async with self._stream(calls.stream_path(run), last, query, None) as events:
                    async for event in events:
                        if event is not None:
                            last = event.id or last
                            patience = Backoff(now_s=self._now(), within_s=self._deadline_s)
                            yield msgspec.json.decode(event.data, type=wire.StreamPiece)
                return
            except (httpx2.TransportError, Unavailable) as error:
                self._go_on_from(self._url)
                await self._rest(patience, error)

    # ---- what is there

    async def publish(self, *things: Workflow[..., Any] | App) -> None:
        """Publish workflows and their schedules, all or none."""
        catalog = calls.published(things)
        with shown(catalog.schedules):
            await self._send(calls.publish(catalog))

    async def workflows(self) -> Sequence[wire.Workflow]:
        """List all workflows."""
        return await self._send(calls.workflows())

    async def workflow(self, name: str) -> wire.WorkflowDetail:
        """Return a workflow with its document."""
        return await self._send(calls.workflow(name))

    async def alive(self) -> bool:
        """Return whether a server responds, with one try per address."""
        for url in self.address.urls:
            with suppress(httpx2.TransportError):
                if (await self._http.get(f"{url}/healthz")).status_code < 500:
                    return True
        return False

    # ---- the network

    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        busy_s = BUSY_S if within_s is None else 0.0
        within_s = self._deadline_s if within_s is None else min(within_s, self._deadline_s)
        patience = Backoff(now_s=self._now(), within_s=within_s, busy_s=busy_s)
        headers, doubt = call.headers() | self._stores.headers(call.path, call.run), False
        while True:
            url = self._url
            try:
                answer = await self._http.request(
                    call.method, url + call.path, params=call.query, content=call.body, headers=headers
                )
                self._stores.check(call.path, answer.status_code, answer.headers, call.run)
                reply = call.read(answer.status_code, answer.headers, answer.content)
                self._stores.submitted(call.path, reply, answer.headers)
                return reply
            except (httpx2.TransportError, Unavailable) as error:
                self._go_on_from(url)
                doubt = doubt or may_have_arrived(error)
                last = call.unknown(error) if doubt else error
                if call.once and last is not error:
                    raise last from error
                await self._rest(patience, error, last)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _rest(self, patience: Backoff, error: Exception, last: Exception | None = None) -> None:
        """Sleep before the next try. Raises `last` if the time limit is reached."""
        at_least_ms = error.retry_after_ms if isinstance(error, Unavailable) else 0
        pause = patience.pause_s(self._now(), at_least_ms=at_least_ms, answered=isinstance(error, Unavailable))
        if pause is None:
            raise unreachable(self.address, last or error) from error
        await asyncio.sleep(pause)

    async def _events(self, run: RunLike, patience: Backoff) -> AsyncGenerator[wire.Run, None]:
        """Yield the events of one connection until it ends. Raises `NoStream` if the server has no stream."""
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
            return  # the caller reads the run and opens the stream again

    @property
    def _url(self) -> str:
        return self.address.urls[0]

    def _go_on_from(self, url: str) -> None:
        """Move an address that failed to the end, only once if several calls to it fail together."""
        if url == self._url:
            self.address = replace(self.address, urls=(*self.address.urls[1:], url))

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
        """Yield None for a line that does not complete an event, so that the caller can check its time limit."""
        reader = EventReader()
        async for line in answer.aiter_lines():
            yield reader.feed(line)
