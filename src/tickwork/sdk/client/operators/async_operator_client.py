"""The part of `AsyncClient` for operators; its calls are in `operator_requests`."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from tickwork.core.base.errors import Refused
from tickwork.core.base.shortened import shortened
from tickwork.protocol import http_models as wire
from tickwork.sdk.client.calls import ApiCall, RunLike
from tickwork.sdk.client.operators import operator_requests as requests

T = TypeVar("T")


class AsyncOperatorsClient:
    async def _send(self, call: ApiCall[T], *, within_s: float | None = None) -> T:
        """Send a call to the server: the client that inherits this class implements it."""
        raise NotImplementedError

    # ---- policies

    async def policies(self) -> Sequence[wire.Policy]:
        """List the policies, with the workflows that name each."""
        return await self._send(requests.policies())

    async def put_policy(
        self, name: str, allow: str, *, reason: str = "", action: str = "fail", pause: str | timedelta | None = None
    ) -> None:
        """Create or replace a policy. `allow` is CEL; where it does not hold, `action` follows: "pause", "fail" or
        "skip_with_log". After `pause`, a paused run is resumed and the policy is asked again."""
        await self._send(requests.put_policy(name, requests.policy_request(allow, reason, action, pause)))

    async def delete_policy(self, name: str) -> None:
        """Delete a policy that no workflow and no unfinished run names."""
        await self._send(requests.delete_policy(name))

    async def test_policy(self, name: str, *, allow: str = "", workflow: str = "", limit: int = 100) -> wire.PolicyTest:
        """Hold a policy, or the expression `allow`, against the steps of recorded runs. Nothing is changed."""
        return await self._send(requests.test_policy(name, allow, workflow, limit))

    # ---- limits and settings

    async def tenants(self) -> Sequence[wire.Tenant]:
        """List the tenants with their share, limits and work."""
        return await self._send(requests.tenants())

    async def put_tenant(
        self,
        name: str = "default",
        *,
        weight: int = 1,
        limit: int | None = None,
        rate: int | None = None,
        per: str | timedelta = "1s",
        burst: int | None = None,
        window: str = "bucket",
        max_live_runs: int | None = None,
    ) -> None:
        """Replace the share and the limits of a tenant; what is left out is unlimited."""
        request = requests.tenant_request(weight, limit, rate, per, burst, window, max_live_runs)
        await self._send(requests.put_tenant(name, request))

    async def pause_tenant(self, name: str = "default", *, reason: str = "") -> None:
        """Pause a tenant: start none of its tasks."""
        await self._send(requests.tenant_action(name, "pause", reason))

    async def resume_tenant(self, name: str = "default") -> None:
        """Resume a paused tenant."""
        await self._send(requests.tenant_action(name, "resume"))

    async def put_mailbox(
        self,
        name: str,
        *,
        keep: str | timedelta = "7d",
        max: int = 100,  # noqa: A002 - the field's name
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        """Declare a mailbox: events of its name are kept for their key until somebody takes them."""
        await self._send(requests.put_mailbox(name, keep, max, fields or {}))

    async def label_limits(self) -> Sequence[wire.LabelLimit]:
        """List the limits of labels."""
        return await self._send(requests.label_limits())

    async def put_label_limit(self, label: str, value: str, limit: int) -> None:
        """Limit the number of concurrent tasks that require a label: `put_label_limit("gpu", "true", 100)`."""
        await self._send(requests.put_label_limit(label, value, limit))

    async def delete_label_limit(self, label: str, value: str) -> None:
        """Delete the limit of a label."""
        await self._send(requests.delete_label_limit(label, value))

    async def delete_queue(self, name: str) -> None:
        """Delete a queue that no workflow or schedule names and that has no tasks."""
        await self._send(requests.delete_queue(name))

    async def settings(self) -> Sequence[wire.Setting]:
        """List the settings of the machine that are in force."""
        return await self._send(requests.settings())

    async def put_settings(self, values: Mapping[str, int] | None = None, /, **more: int) -> None:
        """Change settings, all in one tick: `put_settings(max_runs_per_tick=200)`. All others stay."""
        await self._send(requests.put_settings({**(values or {}), **more}))

    # ---- dead letters

    async def dead_letters(self, workflow: str = "", *, page_size: int = 100) -> AsyncIterator[wire.DeadLetter]:
        """Iterate over failed runs that nobody has brought back or dropped, newest first."""
        cursor = ""
        while True:
            page = await self._send(requests.dead_letters(workflow, cursor, page_size))
            for letter in page.runs:
                yield letter
            if not page.next:
                return
            cursor = page.next

    async def redrive(
        self,
        runs: Iterable[RunLike] = (),
        *,
        workflow: str = "",
        per_second: int = 10,
        reason: str = "",
        limit: int = 1_000,
    ) -> wire.DeadLetterResult:
        """Bring failed runs back, at most `per_second`: these runs, or the newest of a workflow. The result names those
        that cannot come back."""
        return await self._send(requests.redrive(runs, workflow, per_second, reason, limit))

    async def drop(
        self, runs: Iterable[RunLike] = (), *, workflow: str = "", reason: str, limit: int = 1_000
    ) -> wire.DeadLetterResult:
        """Drop failed runs: they end as cancelled, for this reason."""
        return await self._send(requests.drop(runs, workflow, reason, limit))

    # ---- workflows

    async def put_workflows(self, *documents: Mapping[str, Any]) -> None:
        """Publish workflow documents, all or none."""
        await self._send(requests.put_workflows(documents))

    async def delete_workflow(self, name: str) -> None:
        """Delete a workflow that nothing starts any more. Unfinished runs go on, and ended runs stay."""
        await self._send(requests.delete_workflow(name))

    async def pause_workflow(self, name: str, *, reason: str = "") -> None:
        """Pause a workflow: start none of its tasks."""
        await self._send(requests.workflow_action(name, "pause", reason))

    async def resume_workflow(self, name: str) -> None:
        """Resume a paused workflow."""
        await self._send(requests.workflow_action(name, "resume"))

    # ---- what happened

    async def alarms(self) -> Sequence[wire.Alarm]:
        """List the latest alarms, newest first."""
        return await self._send(requests.alarms())

    async def tick(self, number: int, *, partition: int = 0) -> wire.TickTrace:
        """What one tick of a partition did: its inputs, and the runs that it processed, in order."""
        return await self._send(requests.tick(number, partition))

    async def find_run(self, prefix: str) -> str:
        """Return the id of the run that begins so, of those that are unfinished or ended lately. Raises `Refused` if
        there is none, and with the candidates if there are several."""
        found = await self._send(requests.run_ids(prefix))
        if prefix in found.ids:
            return prefix
        if not found.ids:
            raise Refused("unknown_run", f"there is no run {shortened(prefix, 128)!r}", path="run")
        if len(found.ids) > 1:
            names = ", ".join(found.ids[:10]) + (" and more" if found.more or len(found.ids) > 10 else "")
            raise Refused("ambiguous_run", f"several runs begin with {prefix!r}: {names}", path="run")
        return found.ids[0]
