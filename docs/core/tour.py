"""One run through the core, on virtual time: a fan-out, a retry, a wait and an approval.

There is no server in this example, and nothing sleeps: inputs go in with a tick, decisions come out.
At the end the journal is decided again from its first row and must reach the same hash.
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
    """The few lines that stand where the runtime stands later."""

    def __init__(self) -> None:
        self.machine, self.recorder, self.rows = Machine(), Recorder(), []
        self.tick = 0

    def send(self, *asked: inputs.Input) -> list[Dispatch]:
        """One tick: decide, journal, print. Returns the work to hand out."""
        self.tick = max(self.tick + 1, 1)
        outcome = self.machine.apply(self.tick, list(asked))
        self.rows.append(self.recorder.row(self.tick, list(asked), outcome.events))
        for event in outcome.events:
            print(f"  {self.tick:>9}  {event}")
        return [effect for effect in outcome.effects if isinstance(effect, Dispatch)]

    def skip(self) -> list[Dispatch]:
        """To the next tick at which something is due, however far away."""
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
    print("three files, two at a time: the queue's limit")
    first, second = tour.send(inputs.Succeeded(listing.task, listing.attempt, pack(["a", "b", "c"])))
    print("one fails and is tried again after its backoff")
    [third] = tour.send(inputs.Failed(first.task, first.attempt, "IOError"), inputs.Succeeded(second.task, 1))
    tour.send(inputs.Succeeded(third.task, third.attempt))
    [again] = tour.skip()
    tour.send(inputs.Succeeded(again.task, again.attempt))
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
