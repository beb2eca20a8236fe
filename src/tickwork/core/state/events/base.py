"""The struct that all events share."""

import msgspec


class EventStruct(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Encoded as an array with an integer tag."""
