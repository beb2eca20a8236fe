"""What inputs of several topics share."""

import msgspec


class InputStruct(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Encoded as an array; those of the union `Input` also with an integer tag."""


class KnownRun(InputStruct, frozen=True):
    """A fact about a request that starts a run: its id or key belongs to a run that has left memory, or may by now."""

    run_id: str
    body: str
    submitted: int  # tick


class BulkPlace(InputStruct, frozen=True):
    """Where a request stands in a bulk operation. It counts only if the job has come to this place."""

    bulk: str
    place: int
    was: int  # state of the run when it was selected
