"""One run through the core, in virtual time: a fan-out, a retry, a wait and an approval.

This example has no server, and nothing sleeps: inputs go in with a tick, decisions come out. At the end the journal is
decided again from its first row, and must reach the same hash.
"""

import json

from tickwork.core.base.values import pack
from tickwork.core.machine import Machine
from tickwork.core.state import inputs
from tickwork.core.state.effects import Dispatch
from tickwork.core.state.lifecycle import RunState
from tickwork.journal.replay import Recorder, replay

WORKFLOW = {
    "name": "nightly",
    "nodes": [
        {"kind": "task", "id": "list", "handler": "list_files"},
        {"kind": "map", "id": "score", "over": "nodes.list", "needs": ["list"],
         "body": {"kind": "task", "handler": "score", "args": {"path": {"from": "item"}}, "retry": 2}},
        {"kind": "wait", "id": "settle", "duration": "10m", "needs": ["score"]},
        {"kind": "approval", "id": "sign", "needs": ["settle"], "approvers": ["bob"], "timeout": "1d"},
        {"kind": "task", "id": "publish", "handler": "publish", "needs": ["sign"]},
    ],
}  # fmt: skip


class Tour:
    """A minimal replacement for the runtime."""

    def __init__(self) -> None:
        self.machine, self.recorder, self.rows = Machine(), Recorder(), []
        self.tick = 0

    def send(self, *batch: inputs.Input) -> list[Dispatch]:
        """Run one tick: decide, journal, print. Return the dispatches."""
        self.tick = max(self.tick + 1, 1)
        outcome = self.machine.apply(self.tick, list(batch))
        self.rows.append(self.recorder.row(self.tick, list(batch), outcome.events))
        for event in outcome.events:
            print(f"  {self.tick:>9}  {event}")
        return [effect for effect in outcome.effects if isinstance(effect, Dispatch)]

    def skip(self) -> list[Dispatch]:
        """Skip to the next tick at which something is due, however far away."""
        due = self.machine.next_tick()
        assert due is not None
        self.tick = due - 1
        return self.send()


def main() -> None:
    tour = Tour()
    print("set-up")
    tour.send(
        inputs.PutTenant("ops", "acme"),
        inputs.PutQueue("ops", "default", limit=2),
        inputs.PutDefinition("ops", "acme", json.dumps(WORKFLOW).encode()),
        inputs.Offer("laptop", credit=4),
    )
    print("submit")
    [listing] = tour.send(inputs.Submit("alice", "acme", "tonight", "nightly"))
    print("three files, two at a time because of the queue's limit")
    first, second = tour.send(inputs.Succeeded(listing.task, listing.attempt, pack(["a", "b", "c"])))
    print("one file fails and is retried after its backoff")
    [third] = tour.send(inputs.Failed(first.task, first.attempt, "IOError"), inputs.Succeeded(second.task, 1))
    tour.send(inputs.Succeeded(third.task, third.attempt))
    [retry] = tour.skip()
    tour.send(inputs.Succeeded(retry.task, retry.attempt))
    print("ten minutes cost nothing")
    tour.skip()
    print("a person decides")
    [publish] = tour.send(inputs.Decide("bob", "acme", "tonight", "sign", approve=True))
    print("done")
    tour.send(inputs.Succeeded(publish.task, publish.attempt))
    tenant = tour.machine.state.tenants["acme"]
    print(f"{RunState.COMPLETED.name}: {tenant.completed} of {tenant.accepted} runs")

    head = replay(tour.rows, Machine())
    assert head == tour.recorder.head
    print(f"decided again from the first row: {len(tour.rows)} ticks, same hash {head.hex()[:16]}…")


if __name__ == "__main__":
    main()
