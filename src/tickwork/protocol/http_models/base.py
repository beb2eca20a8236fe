"""What all models of the public API share: immutable, defaults left out, and requests without unknown fields."""

import msgspec


class Model(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class RequestModel(Model, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Reason(RequestModel, frozen=True, kw_only=True):
    reason: str = ""


class PauseRequest(Reason, frozen=True, kw_only=True):
    until: str = ""
