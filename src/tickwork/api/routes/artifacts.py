"""Artifacts: large values, each stored under the digest of its content."""

import re

from tickwork.api.http.request import Request
from tickwork.api.http.response import OCTETS, Response, as_json
from tickwork.api.http.route import BodySpec, ResponseSpec, Route
from tickwork.core.base.errors import Refused
from tickwork.ports.artifacts import ARTIFACT_BYTES_MAX, digest_of
from tickwork.protocol import http_models as wire

_PATH = "/v1/artifacts/{digest}"
_DIGEST = re.compile(r"[0-9a-f]{64}")


async def get(request: Request) -> Response:
    digest = _digest(request)
    data = await request.host.artifacts.get(digest)
    if data is None:
        raise Refused("unknown_artifact", f"there is no artifact {digest}", path="digest")
    # A browser saves it and never renders it: users write the content, and it could be a page.
    return Response(200, data, OCTETS, (b"content-disposition", b"attachment"))


async def put(request: Request) -> Response:
    digest = _digest(request)
    request.kind()
    data = await request.data()
    actual = digest_of(data)
    if actual != digest:
        raise Refused("digest_mismatch", f"these bytes have the digest {actual}; send them under it", path="digest")
    await request.host.artifacts.put(data)
    return as_json(wire.Stored(digest=digest, size=len(data)), 201)


def _digest(request: Request) -> str:
    """Return the digest in the path, checked before it becomes part of a file name."""
    digest = request.text("digest")
    if not _DIGEST.fullmatch(digest):
        raise Refused("bad_digest", "a digest is 64 characters 0-9 and a-f: BLAKE2b with 32 bytes", path="digest")
    return digest


ROUTES = (
    Route(
        method="GET",
        path=_PATH,
        routed_to="here",
        handler=get,
        summary="Return the bytes of an artifact.",
        tag="artifacts",
        responses={200: ResponseSpec(None, (OCTETS,), "Its bytes.")},
        refusals=(404,),
    ),
    Route(
        method="PUT",
        path=_PATH,
        routed_to="here",
        handler=put,
        summary="Store bytes under their digest. Storing them again changes nothing.",
        tag="artifacts",
        body=BodySpec(None, (OCTETS,), ARTIFACT_BYTES_MAX, summary="The bytes."),
        responses={201: ResponseSpec(wire.Stored, summary="Stored, and durable.")},
    ),
)
