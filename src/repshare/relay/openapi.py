"""The description of the API, /openapi.json: made of the endpoints' docstrings and their requests' models."""

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
from repshare.relay.service import Service

Described = dict[str, Any]  # a part of /openapi.json
Answer = Callable[[Service, Request], Awaitable[Response]]

BYTES, JSON = "application/octet-stream", "application/json"
ABOUT = (
    "Between clients that learn together by sharing representations. Releases and teachers are safetensors bytes. "
    "Errors are `application/problem+json` (RFC 9457); 429 and 503 say when to try again (Retry-After). Their `type` "
    "ends in one of: "
)
REFERENCE = "#/components/schemas/{model}"
NAMES = {"task": PATTERN, "client": CLIENT_PATTERN}  # in paths


@dataclass(frozen=True)
class Endpoint:
    """A function that answers requests for a path. Its docstring is its description for users of the API."""

    method: str
    path: str
    answer: Answer
    results: Mapping[int, str | None] = field(default_factory=lambda: {200: JSON})  # media types by status
    query: type[BaseModel] | None = None  # with what the path has besides names
    body: type[BaseModel] | str | None = None  # JSON of this model, or a media type
    guarded: bool = field(default=True, kw_only=True)  # by a token


def describe_api(endpoints: Iterable[Endpoint], *, insecure: bool) -> Described:
    """Return the OpenAPI document."""
    paths: dict[str, Described] = defaultdict(dict)
    models = []
    for each in endpoints:
        paths[each.path][each.method.lower()] = _describe(each, insecure=insecure)
        if isinstance(each.body, type):
            models.append(each.body)
    components = {
        "schemas": models_json_schema([(each, "validation") for each in models], ref_template=REFERENCE)[1]["$defs"]
    }
    if not insecure:
        token = {"type": "http", "scheme": "bearer", "bearerFormat": "rs_<id>_<secret>"}
        components["securitySchemes"] = {"token": token}
    kinds = "; ".join(f"{kind} ({status}: {title})" for kind, (status, title) in KINDS.items())
    info = {"title": "repshare relay", "description": f"{ABOUT}{kinds}.", "version": repshare.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _describe(endpoint: Endpoint, *, insecure: bool) -> Described:
    summary, _, description = (inspect.getdoc(endpoint.answer) or "").partition("\n\n")
    responses: Described = {
        str(status): {"description": HTTPStatus(status).phrase, "content": {media: {}} if media else {}}
        for status, media in endpoint.results.items()
    }
    operation: Described = {
        "operationId": endpoint.answer.__name__,
        "tags": [endpoint.answer.__module__.rpartition(".")[2]],
        "summary": summary.removesuffix("."),
        "description": " ".join(description.split()),
        "parameters": _describe_parameters(endpoint, insecure=insecure),
        "responses": {**responses, "default": {"description": "An error", "content": {MEDIA_TYPE: {}}}},
    }
    if isinstance(endpoint.body, str):
        operation["requestBody"] = {
            "required": True,
            "content": {endpoint.body: {"schema": {"type": "string", "format": "binary"}}},
        }
    elif endpoint.body:
        schema = {"$ref": REFERENCE.format(model=endpoint.body.__name__)}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
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
