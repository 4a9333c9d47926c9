"""The description of the API, /openapi.json: written from the endpoints' docstrings and pydantic models."""

import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response

import repshare
from repshare.relay.auth import CLIENT_PATTERN, PATTERN
from repshare.relay.problems import KINDS, MEDIA_TYPE
from repshare.relay.routes.schemas import ProblemDetails
from repshare.relay.service import Service

Described = dict[str, Any]  # a part of /openapi.json
Answer = Callable[[Service, Request], Awaitable[Response]]
Shape = type[BaseModel] | str | None  # of a body: JSON of this model, a media type, or none

ABOUT = (
    "Between clients that learn together by sharing representations. Errors are `application/problem+json`; "
    "429 and 503 say when to try again (Retry-After). Releases and teachers are safetensors bytes."
)
REFERENCE = "#/components/schemas/{model}"
GUARDED = ("unauthorised", "forbidden", "unknown", "too-fast")  # problems of every endpoint behind a token
NAMES = {"task": PATTERN, "client": CLIENT_PATTERN}  # in paths


@dataclass(frozen=True)
class Endpoint:
    """A function that answers requests for a path. Its docstring is its description for users of the API."""

    method: str
    path: str
    answer: Answer
    results: Mapping[int, Shape]  # by status
    problems: tuple[str, ...] = ()  # besides those of every endpoint
    query: type[BaseModel] | None = None  # with what the path has besides names
    body: Shape = None
    guarded: bool = field(default=True, kw_only=True)  # by a token


def describe_api(endpoints: Iterable[Endpoint], *, insecure: bool) -> Described:
    """Return the OpenAPI document."""
    paths: dict[str, Described] = defaultdict(dict)
    models: set[type[BaseModel]] = {ProblemDetails}
    for each in endpoints:
        paths[each.path][each.method.lower()] = _describe(each, insecure=insecure)
        models |= {shape for shape in (each.body, *each.results.values()) if isinstance(shape, type)}
    wanted = [(model, "serialization") for model in sorted(models, key=lambda model: model.__name__)]
    components = {"schemas": models_json_schema(wanted, ref_template=REFERENCE)[1]["$defs"]}  # type: ignore[arg-type]
    if not insecure:
        token = {"type": "http", "scheme": "bearer", "bearerFormat": "rs_<id>_<secret>"}
        components["securitySchemes"] = {"token": token}
    info = {"title": "repshare relay", "description": ABOUT, "version": repshare.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _describe(endpoint: Endpoint, *, insecure: bool) -> Described:
    summary, _, description = (inspect.getdoc(endpoint.answer) or "").partition("\n\n")
    responses: Described = {
        str(status): {"description": HTTPStatus(status).phrase, **_content(shape)}
        for status, shape in endpoint.results.items()
    }
    for kind in (*(GUARDED if endpoint.guarded else ()), *endpoint.problems, "store-away"):
        status, title = KINDS[kind]
        before = responses.get(str(status))
        title = f"{before['description']}; or: {title}" if before else title
        responses[str(status)] = {"description": title, **_content(ProblemDetails, MEDIA_TYPE)}
    operation: Described = {
        "operationId": endpoint.answer.__name__,
        "tags": [endpoint.answer.__module__.rpartition(".")[2]],
        "summary": summary.removesuffix("."),
        "description": " ".join(description.split()),
        "parameters": _describe_parameters(endpoint, insecure=insecure),
        "responses": responses,
    }
    if endpoint.body:
        operation["requestBody"] = {"required": True, **_content(endpoint.body)}
    return operation | ({"security": [{"token": []}]} if endpoint.guarded and not insecure else {})


def _describe_parameters(endpoint: Endpoint, *, insecure: bool) -> list[Described]:
    """Return the path's names and the fields of the query. Without a token, a request must name its client."""
    names = [name for name in NAMES if f"{{{name}}}" in endpoint.path]
    told = {name: {"type": "string", "pattern": NAMES[name]} for name in names}
    shape = endpoint.query.model_json_schema() if endpoint.query else {}
    parameters = []
    for name, schema in (told | shape.get("properties", {})).items():
        place = "path" if f"{{{name}}}" in endpoint.path else "query"
        required = place == "path" or name in shape.get("required", ()) or (insecure and name == "client")
        what, default = schema.pop("description", f"the {name}'s name"), schema.pop("default", None)
        schema.pop("title", None)
        schema |= {} if default is None else {"default": default}
        parameters.append({"name": name, "in": place, "required": required, "description": what, "schema": schema})
    return parameters


def _content(shape: Shape, media_type: str = "application/json") -> Described:
    match shape:
        case None:
            return {}
        case str():
            kind = {"type": "string", "format": "binary"} if shape == "application/octet-stream" else {"type": "string"}
            return {"content": {shape: {"schema": kind}}}
    return {"content": {media_type: {"schema": {"$ref": REFERENCE.format(model=shape.__name__)}}}}
