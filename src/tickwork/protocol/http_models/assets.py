"""Models of assets: what is known of data by its name."""

from typing import Any

from tickwork.protocol.http_models.base import Model, RequestModel


class AssetUpdateRequest(RequestModel, frozen=True, kw_only=True):
    """New data of an asset."""

    partition: str = ""  # which part of it is new; "": all
    details: dict[str, Any] = {}  # what is worth knowing, at most 1 KiB
    id: str = ""  # another update with this id within a day is the same one; "": the `Idempotency-Key`


class AssetUpdate(Model, frozen=True, kw_only=True):
    at: str
    by: str = ""
    source: str = ""  # the task that made it; "": a person or program said so
    partition: str = ""
    details: Any = None


class AssetPartition(Model, frozen=True, kw_only=True):
    partition: str
    updated_at: str


class Producer(Model, frozen=True, kw_only=True):
    workflow: str
    node: str


class Consumer(Model, frozen=True, kw_only=True):
    schedule: str
    workflow: str


class Asset(Model, frozen=True, kw_only=True):
    """Data by its name, with its lineage."""

    name: str
    count: int = 0  # of all updates
    updated_at: str | None = None
    produced_by: tuple[Producer, ...] = ()
    consumed_by: tuple[Consumer, ...] = ()
    updates: tuple[AssetUpdate, ...] = ()  # the latest, newest first; of one that is shown alone
    partitions: tuple[AssetPartition, ...] = ()  # the latest, newest first; of one that is shown alone


class Assets(Model, frozen=True, kw_only=True):
    assets: tuple[Asset, ...]


class AssetHeard(Model, frozen=True, kw_only=True):
    """What became of an update."""

    schedules: int = 0  # schedules that count it
    duplicate: bool = False  # an update with its id came before, so nothing has happened
