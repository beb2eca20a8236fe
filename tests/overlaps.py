"""I24 from the journal alone: who was active when a run of a schedule began.

Terms change and failed runs come back by somebody's decision, so a moment cannot tell whether an overlap was
allowed; the order of events can.
"""

from tickwork.core.state import events as ev
from tickwork.core.state import inputs as inp
from tickwork.core.state.lifecycle import RUN_MOVES, RunState, RunTrigger

ENDS = {
    trigger
    for trigger in RunTrigger
    if {after for (_, one), after in RUN_MOVES.items() if one == trigger}
    <= {RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED}
}


class Overlaps:
    def __init__(self):
        self.terms = {}  # schedule -> (overlap, how many may wait, governed)
        self.active = {}  # schedule -> runs
        self.owner = {}  # run -> schedule
        self.buffered = {}  # schedule -> how many wait

    def observe(self, inputs, events):
        """Every run that began while its schedule's terms said no, and every wait beyond them."""
        found = []
        for event in events:
            match event:
                case ev.SchedulePut():
                    asked = inputs[event.input]
                    put = asked.puts[event.item] if event.item >= 0 else asked
                    assert isinstance(put, inp.PutSchedule)
                    room = {"buffer_one": 1, "buffer_all": put.terms.buffer_max}.get(put.terms.overlap, 0)
                    self.terms[event.schedule] = (put.terms.overlap, room, put.governing is not None)
                case ev.RunScheduled(way="due" | "buffered" | "trigger"):
                    overlap, _, governed = self.terms[event.schedule]
                    active = self.active.setdefault(event.schedule, set())
                    if active and (overlap != "allow" or governed):
                        found.append(f"run {event.run} began beside {sorted(active)} ({overlap})")
                    active.add(event.run)
                    self.owner[event.run] = event.schedule
                    if event.way == "buffered":
                        self.buffered[event.schedule] -= 1
                case ev.OccurrenceBuffered():
                    waiting = self.buffered.get(event.schedule, 0) + 1
                    self.buffered[event.schedule] = waiting
                    if waiting > self.terms[event.schedule][1]:
                        found.append(f"{waiting} occurrences of {event.schedule} wait")
                case ev.OccurrencesCancelled():
                    self.buffered[event.schedule] -= len(event.dues_ms)
                case ev.RunMoved() if event.trigger in ENDS and event.run in self.owner:
                    self.active[self.owner.pop(event.run)].discard(event.run)
        return found
