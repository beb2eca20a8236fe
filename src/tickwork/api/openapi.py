"""The OpenAPI 3.1 document, built from the route table and the models, so that it matches the server."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from tickwork.api.http.etags import IF_MATCH_CHARACTERS_MAX
from tickwork.api.http.request import KEY_CHARACTERS_MAX
from tickwork.api.http.response import JSON, MSGPACK, PROBLEM
from tickwork.api.http.route import MANY_MAX, BodySpec, QueryParam, ResponseSpec, Route
from tickwork.protocol import http_models as wire
from tickwork.version import VERSION

_PARTS = re.compile(r"{([a-z]+)}")
_NAME = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$"}
_NUMBER = {"type": "string", "pattern": "^[0-9]{1,18}$"}
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "asset": ("The name of the asset.", _NAME),
    "attempt": ("The number of the attempt.", _NUMBER),
    "backfill": ("The number of the backfill.", _NUMBER),
    "dag": ("The name of the workflow.", _NAME),
    "digest": ("BLAKE2b of the bytes, 32 bytes in hex.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "endpoint": ("The name of the endpoint.", _NAME | {"maxLength": 119}),
    "group": ("The name of the group.", _NAME),
    "holidays": ("The name of the list.", _NAME),
    "label": ("The name of the label.", _NAME),
    "mailbox": ("The name of the mailbox.", _NAME),
    "name": ("The name of the message or value.", _NAME),
    "node": ("The id of the node.", _NAME),
    "operation": ("The id of the bulk operation.", _NAME),
    "partition": ("The number of the partition.", _NAME),
    "policy": ("The name of the policy.", _NAME),
    "queue": ("The name of the queue.", _NAME),
    "run": ("The id of the run.", {"type": "string", "minLength": 1, "maxLength": 8192}),
    "schedule": ("The name of the schedule.", _NAME),
    "task": ("The number of the task.", _NUMBER),
    "tenant": ("The name of the tenant.", _NAME),
    "tick": ("The number of the tick.", _NUMBER),
    "value": ("The value of the label.", _NAME),
    "webhook": ("The name of the webhook.", _NAME),
    "worker": ("The name of the worker.", _NAME),
    "workflow": ("The name of the workflow.", _NAME),
}
HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {"maxLength": KEY_CHARACTERS_MAX},
    "If-Match": {"maxLength": IF_MATCH_CHARACTERS_MAX},
    "If-None-Match": {"enum": ["*"]},
    "X-Tickwork-By": {"minLength": 1, "maxLength": 128},
}
REFUSALS = {
    400: "The request is malformed.",
    401: "The token or signature is missing or wrong.",
    403: "The origin or the caller is not allowed.",
    404: "It does not exist.",
    406: "The value cannot be represented in this media type.",
    408: "The body did not arrive in time.",
    409: "Its state does not allow this.",
    412: "It has changed since it was read: its ETag is another one. Read it again.",
    413: "The body is too large.",
    415: "The content type of the body is not supported.",
    422: "The request is invalid: `code`, `path` and `detail` say what to change.",
    429: "Too many requests; try again after `Retry-After`.",
    431: "The request line and headers are too large.",
    500: "Internal error; the server log has details under `request_id`.",
    503: "Temporarily unavailable; try again after `Retry-After`.",
    504: "The outcome is unknown (`outcome_unknown`): read the state, or repeat the request with the same key.",
    507: "The store has no space left; try again after `Retry-After`.",
}
HEADERS_OF_REFUSALS = {
    401: {"WWW-Authenticate": "`Bearer`: the authentication scheme."},
    429: {"Retry-After": "Seconds to wait."},
    500: {"X-Request-Id": "Equal to `request_id`."},
    503: {"Retry-After": "Seconds to wait."},
    507: {"Retry-After": "Seconds to wait."},
}
OF_EVERY_ROUTE = (400, 401, 403, 422, 431, 500, 503)
WITH_BODY = (408, 413, 415, 507)
CHANGING = (504,)  # for requests that change something


def document(table: Iterable[Route]) -> dict[str, Any]:
    routes = list(table)
    models = _models(routes)
    schemas, components = msgspec.json.schema_components(models, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(map(_key, models), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tickwork",
            "version": VERSION,
            "description": "A deterministic scheduler. A command returns when it is durable.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _models(routes: list[Route]) -> list[Any]:
    models: dict[str, Any] = {_key(wire.Problem): wire.Problem}
    for route in routes:
        taken = [route.body.model] if route.body is not None else []
        for model in [*taken, *(response.model for response in route.responses.values())]:
            if model is not None:
                models[_key(model)] = model
    return list(models.values())


def _key(model: Any) -> str:
    name: str = model.__name__
    return name


def _operation(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.id,
        "summary": route.summary.split(". ")[0].rstrip("."),
        "description": route.summary,
        "tags": [route.tag],
        "responses": _responses(route, schema_of),
        "security": [] if route.open else [{"token": []}, {}],
    }
    parameters = [_path_parameter(part) for part in _PARTS.findall(route.path)]
    parameters += [_query_parameter(param) for param in route.query]
    parameters += [_header(name, summary) for name, summary in route.headers]
    if route.method not in ("GET", "HEAD"):
        parameters.append(_header("X-Tickwork-By", "Author of the request, recorded in the journal; default: `api`."))
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        operation["requestBody"] = _body(route.body, schema_of)
    return operation


def _path_parameter(part: str) -> dict[str, Any]:
    summary, schema = PARTS[part]
    return {"name": part, "in": "path", "required": True, "description": summary, "schema": schema}


def _query_parameter(param: QueryParam) -> dict[str, Any]:
    schema: dict[str, Any]
    if param.kind is int:
        schema = {"type": "integer", "minimum": param.low, "maximum": param.high}
    elif param.kind is bool:
        schema = {"type": "boolean"}
    else:
        schema = {"type": "string", "maxLength": param.characters_max}
        if param.choices:
            schema = {"type": "string", "enum": list(param.choices)}
    if param.many:
        schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": MANY_MAX}
    parameter = {
        "name": param.name,
        "in": "query",
        "required": param.required,
        "description": param.summary,
        "schema": schema,
    }
    return parameter | {"style": "form", "explode": False} if param.many else parameter


def _header(name: str, summary: str) -> dict[str, Any]:
    schema = {"type": "string"} | HEADERS.get(name, {})
    return {"name": name, "in": "header", "required": False, "description": summary, "schema": schema}


def _body(body: BodySpec, schema_of: dict[str, Any]) -> dict[str, Any]:
    return {
        "required": not body.optional,
        "description": body.summary or "The request.",
        "content": {kind: _content(body.model, kind, schema_of) for kind in body.kinds},
    }


def _content(model: Any, kind: str, schema_of: dict[str, Any]) -> dict[str, Any]:
    if model is not None and kind in (JSON, MSGPACK, PROBLEM):
        return {"schema": schema_of[_key(model)]}
    return {}


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    responses = {str(status): _response(response, schema_of) for status, response in route.responses.items()}
    refusals = (
        *OF_EVERY_ROUTE,
        *(WITH_BODY if route.body is not None else ()),
        *(CHANGING if route.method != "GET" else ()),
        *((404,) if "{" in route.path else ()),  # a value that does not fit a path matches no route
        *route.refusals,
    )
    for status in sorted(dict.fromkeys(refusals)):
        responses[str(status)] = {
            "description": REFUSALS[status],
            "content": {PROBLEM: {"schema": schema_of[_key(wire.Problem)]}},
        }
        if status in HEADERS_OF_REFUSALS:
            responses[str(status)]["headers"] = {
                name: {"description": summary, "schema": {"type": "string"}}
                for name, summary in HEADERS_OF_REFUSALS[status].items()
            }
    return responses


def _response(response: ResponseSpec, schema_of: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": response.summary or "The response."}
    if response.kinds:
        answer["content"] = {kind: _content(response.model, kind, schema_of) for kind in response.kinds}
    if response.headers:
        answer["headers"] = {name: {"schema": {"type": "string"}} for name in response.headers}
    return answer
