"""The route table: each entry has a method, a path, its parameters, its responses, and its handler.

Requests are read by it, the OpenAPI document is made from it, and a test walks through it, so none of the three can
know a route that the others do not.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from starlette.types import Receive, Scope

from tickwork.api.http.response import JSON, Response, StreamingResponse

if TYPE_CHECKING:
    from tickwork.api.http.request import Request
    from tickwork.runtime.engine import Engine

Handler = Callable[["Request"], Awaitable[Response | StreamingResponse]]
INTEGER_MAX = 2**63 - 1
MANY_MAX = 20


class LocalHandler(Protocol):
    """Handles a request on this node, with the engine of one of its partitions."""

    async def local(
        self, route: "Route", scope: Scope, receive: Receive, whole: bytes | None, engine: "Engine | None"
    ) -> Response | StreamingResponse | None: ...

    async def guarded(
        self, answering: Awaitable[Response | StreamingResponse | None]
    ) -> Response | StreamingResponse | None: ...


class QueryParam(msgspec.Struct, frozen=True):
    """A query parameter. Undeclared parameters are refused."""

    name: str
    summary: str
    kind: type = str  # str, int or bool
    default: Any = ""
    low: int = 0
    high: int = INTEGER_MAX
    characters_max: int = 255
    choices: tuple[str, ...] = ()
    many: bool = False  # several values, comma-separated
    required: bool = False


class BodySpec(msgspec.Struct, frozen=True):
    """The body that a route accepts: a model, or plain bytes."""

    model: Any = None
    kinds: tuple[str, ...] = (JSON,)
    bytes_max: int = 16 * 1024 * 1024
    optional: bool = False
    summary: str = ""


class ResponseSpec(msgspec.Struct, frozen=True):
    """One possible response of a route."""

    model: Any = None  # None: no JSON schema
    kinds: tuple[str, ...] = (JSON,)
    summary: str = ""
    headers: tuple[str, ...] = ()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    handler: Any  # Handler
    summary: str
    tag: str
    responses: dict[int, ResponseSpec]
    refusals: tuple[int, ...] = ()  # in addition to the statuses common to all routes
    query: tuple[QueryParam, ...] = ()
    body: BodySpec | None = None
    headers: tuple[tuple[str, str], ...] = ()  # optional headers with their descriptions
    open: bool = False  # needs no token
    internal: bool = False  # for nodes only: needs a node's proof of identity
    # Which node of a cluster responds: the owner of the tenant's home, or of the run, task or partition in the path;
    # the node that gets the request (`here`); the owners of the tenant's partitions (`all`, `any`, `runs`), or of all
    # partitions (`every`).
    routed_to: Literal["home", "run", "task", "partition", "here", "all", "any", "runs", "every"] = "home"
    split_body: Any = None  # with `all`: returns the body for one of the partitions
    gather: Any = None  # with `runs` and `every`: merges the responses
    edited: Any = None  # what was put of the resource, as bytes: its ETag follows from it; None: there is none

    @property
    def id(self) -> str:
        words = [word for part in self.path.split("/") for word in [part.strip("{}")] if word and word != "v1"]
        return "_".join([self.method.lower(), *words]).replace(".", "_")
