"""Endpoints: the functions that answer requests, and their description in /openapi.json."""

import inspect
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

import repshare
from repshare.relay.auth import CLIENT_PATTERN, PATTERN
from repshare.relay.problems import KINDS, MEDIA_TYPE
from repshare.relay.routes.schemas import MODELS
from repshare.relay.service import Service

Described = dict[str, Any]  # a part of /openapi.json
Answer = Callable[[Service, Request], Awaitable[Response]]

ABOUT = (
    "Between clients that learn together by sharing representations. Errors are `application/problem+json`; "
    "releases and teachers are safetensors bytes."
)
REFERENCE = "#/components/schemas/{model}"
GUARDED = ("unauthorised", "forbidden", "unknown", "too-fast")  # problems of every endpoint behind a token
PROBLEM_HEADERS = {401: "WWW-Authenticate", 429: "Retry-After", 503: "Retry-After"}
SUCCESS = "Successful Response"
TEXT: Described = {"schema": {"type": "string"}}
BYTES = "application/octet-stream"
BINARY = {BYTES: {"schema": {"type": "string", "format": "binary"}}}
BODY: Described = {"required": True, "content": BINARY}


class Endpoint(NamedTuple):
    """A function that answers requests for a path, and its description."""

    methods: Sequence[str]
    path: str
    pattern: re.Pattern[str]
    answer: Answer
    operation: Described | None  # None: /openapi.json does not have it


class Endpoints(list[Endpoint]):
    """The endpoints of one file. Their docstrings are their descriptions for users of the API."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag

    def add(
        self,
        methods: str,
        path: str,
        results: type[BaseModel] | dict[int, Described] | None = None,
        *,
        problems: Iterable[str] | None = (),
        parameters: Iterable[Described] = (),
        body: Described | None = None,
    ) -> Callable[[Answer], Answer]:
        """Add the function below.

        Args:
            methods: of HTTP
            path: with its parameters in braces; a task and a client need no description
            results: the answers that are a success by status, or the model of 200; None leaves the description out
            problems: in addition to those of all endpoints behind a token; None if there are none at all
            parameters: other parameters
            body: of the request
        """

        def add(answer: Answer) -> Answer:
            operation = None if results is None else {"operationId": _name(answer, methods, path)} | described(answer)
            self.append(Endpoint(methods.split(), path, compile_path(path)[0], answer, operation))
            return answer

        def described(answer: Answer) -> Described:
            summary, _, description = (inspect.getdoc(answer) or "").partition("\n\n")
            found = results if isinstance(results, dict) else {200: describe_json(results)}
            guarded = GUARDED if path.startswith("/v1/") else ()
            failed = {} if problems is None else _describe_problems(*guarded, *problems, "store-away")
            inside = [each for each in (TASK, CLIENT) if f"{{{each['name']}}}" in path]
            parts = {
                "tags": [self._tag],
                "summary": summary.removesuffix("."),
                "description": " ".join(description.split()),
                "parameters": [*inside, *parameters],
                "requestBody": body,
                "responses": {str(status): each for status, each in {**found, **failed}.items()},
            }
            return {key: value for key, value in parts.items() if value}

        return add


def describe_api(endpoints: Iterable[Endpoint], *, insecure: bool) -> Described:
    """Return the OpenAPI document."""
    paths: dict[str, Described] = defaultdict(dict)
    for endpoint in endpoints:
        if (operation := endpoint.operation) is not None:
            if insecure:
                operation = _require_client(operation)
            elif "401" in operation["responses"]:
                operation = {**operation, "security": [{"token": []}]}
            paths[endpoint.path][endpoint.methods[0].lower()] = operation
    _, shapes = models_json_schema([(model, "serialization") for model in MODELS], ref_template=REFERENCE)
    components = {"schemas": shapes["$defs"]}
    if not insecure:
        token = {"type": "http", "scheme": "bearer", "bearerFormat": "rs_<id>_<secret>"}
        components["securitySchemes"] = {"token": token}
    info = {"title": "repshare relay", "description": ABOUT, "version": repshare.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components}


def _require_client(operation: Described) -> Described:
    """Require a client's name: without a token, a request must name its client."""
    required = {"client": {"required": True}}
    named = [each | required.get(each["name"], {}) for each in operation.get("parameters", ())]
    return {**operation, "parameters": named} if named else operation


def describe_json(model: type[BaseModel] | None = None, description: str = SUCCESS) -> Described:
    """Return the description of an answer that is JSON: this model, or any object."""
    schema = {"type": "object"} if model is None else {"$ref": REFERENCE.format(model=model.__name__)}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def describe_body(model: type[BaseModel]) -> Described:
    """Return the description of a request's body that is this model as JSON."""
    return {"required": True, "content": describe_json(model)["content"]}


def parameter(name: str, what: str, schema: Described, inside: str = "query", **more: Any) -> Described:
    """Return the description of a parameter."""
    return {"name": name, "in": inside, "description": what, "schema": schema, **more}


def number(most: float, **more: Any) -> Described:
    """Return the schema of a number, whole if `most` is, from 0 on."""
    return {"type": "integer" if isinstance(most, int) else "number", "minimum": 0, "maximum": most, **more}


def several(item: Described, most: int, **more: Any) -> Described:
    """Return the schema of a parameter that may be given several times."""
    return {"type": "array", "items": item, "maxItems": most, **more}


def _describe_problems(*kinds: str) -> dict[int, Described]:
    """Return the descriptions of answers with these problems, by status."""
    found: dict[int, Described] = {}
    for kind in kinds:
        status, title = KINDS[kind]
        title = f"{found[status]['description']}; or: {title}" if status in found else title
        example = {"type": f"urn:repshare:problem:{kind}", "title": title, "status": status, "detail": "…"}
        schema = {"$ref": REFERENCE.format(model="ProblemDetails")}
        found[status] = {"description": title, "content": {MEDIA_TYPE: {"schema": schema, "example": example}}}
        if header := PROBLEM_HEADERS.get(status):
            found[status]["headers"] = {header: TEXT}
    return found


def _name(answer: Answer, method: str, path: str) -> str:
    return re.sub(r"\W", "_", f"{answer.__name__}{path}") + f"_{method.lower()}"


TASK = parameter("task", "the task's name", {"type": "string", "pattern": PATTERN}, "path", required=True)
CLIENT = parameter("client", "the client's name", {"type": "string", "pattern": CLIENT_PATTERN}, "path", required=True)
