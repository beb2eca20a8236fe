"""What inputs of several topics share."""

import msgspec


class InputStruct(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Encoded as an array; those of the union `Input` also with an integer tag."""


class KnownRun(InputStruct, frozen=True):
    """A fact beside what begins a run: this id or key belongs to one that has left memory, or may in this tick."""

    run_id: str
    body: str
    submitted: int  # tick
