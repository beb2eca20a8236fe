"""Models of a cluster: nodes, partitions, routes of tenants, and submissions held for an operator."""

import msgspec

from tickwork.protocol.http_models.base import RequestModel


class HeldRun(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted while its partition had no owner, and refused by the owner that came."""

    id: str
    partition: int
    workflow: str
    by: str = ""
    code: str = ""
    detail: str = ""


class HeldRuns(msgspec.Struct, frozen=True, kw_only=True):
    runs: tuple[HeldRun, ...] = ()


class Ids(RequestModel, frozen=True, kw_only=True):
    ids: tuple[str, ...]


class SpreadRequest(RequestModel, frozen=True, kw_only=True):
    spread: int  # partitions


class ClusterNode(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    session: str
    address: str
    version: str
    started_at: str
    draining: bool = False
    engine: bool = True
    partitions: tuple[int, ...] = ()
    here: bool = False  # this one answered


class ClusterPartition(msgspec.Struct, frozen=True, kw_only=True):
    partition: int
    node: str  # its owner; "": none now
    address: str
    epoch: int
    seq: int
    rows_behind: int  # ticks by which rows follow the journal
    here: bool = False


class ClusterRoute(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    home: int
    spread: int


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    nodes: tuple[ClusterNode, ...] = ()
    partitions: tuple[ClusterPartition, ...] = ()
    routes: tuple[ClusterRoute, ...] = ()


class Owners(msgspec.Struct, frozen=True, kw_only=True):
    """Where workers find the owner of each partition."""

    partitions: tuple[str, ...]  # addresses; "": it has no owner now
    nodes: int  # how many there are
    store: str = ""  # identity of the store that they share
