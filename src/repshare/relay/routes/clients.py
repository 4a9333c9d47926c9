"""A client's endpoints: publish a release, take it back, fetch a teacher, wait for news."""

import hashlib
from enum import Enum
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request, Response

from repshare.board import Wants, longest_release
from repshare.errors import Refused
from repshare.relay import sizes
from repshare.relay.auth import Grant, is_client_name
from repshare.relay.limits import PART_BYTES
from repshare.relay.page.recorder import forget
from repshare.relay.problems import Problem
from repshare.relay.routes.direct import Direct
from repshare.relay.schemas import BYTES, CLIENT, GUARDED, MOST_PEERS, TASK, TaskVersion, answers, describe_number, name
from repshare.relay.service import Service
from repshare.relay.tasks import Open

MOST_OBSERVATIONS = 1000  # of a class, in one teacher
MOST_CLASSES = 1000  # in one question
LONGEST_WAIT_SECONDS = 60.0
MOST_SEED = 2**64 - 1

RELEASE = "/v1/tasks/{task}/clients/{client}/release"
BODY = {"required": True, "content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}}
TAGS: list[str | Enum] = ["clients"]

Query = dict[str, list[str]]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints."""
    ordinary, app.router.route_class = app.router.route_class, Direct

    @app.put(
        RELEASE,
        tags=TAGS,
        summary="Publish a release",
        description="Safetensors bytes, as `repshare.sharing.wire.encode_release` writes them, in place of the "
        "client's last release. The same bytes again change nothing; an older round is refused.",
        responses={200: {"model": TaskVersion}, **answers("malformed", *GUARDED, *TAKING)},
        openapi_extra={"parameters": [TASK, CLIENT], "requestBody": BODY},
    )
    async def publish(request: Request) -> Response:
        path = request.path_params
        client = path["client"]
        grant = await service.enter(request, ("client",), path["task"])
        there = await service.open(path["task"])
        check_client(service, grant, client)
        async with service.receive(request, there, longest_release(there.entry.task)) as body:
            load = sizes.of_release(there.entry.task, body)
            service.spend(request, load)
            version = await service.write(there.board.accept_all, (client, body), load.bytes)
        digest = hashlib.sha256(body).hexdigest()
        service.accepted(request, "publish", task=path["task"], client=client, sha256=digest, bytes=len(body))
        service.metrics.bytes_in.inc(len(body))
        service.seen.note(path["task"], client, up=len(body), published=True)
        return _changed(service, path["task"], version)

    @app.delete(
        RELEASE,
        tags=TAGS,
        summary="Take a release back",
        description="For the client itself, and for admins. Without a release nothing changes.",
        responses={200: {"model": TaskVersion}, **answers(*GUARDED, "invalid")},
        openapi_extra={"parameters": [TASK, CLIENT]},
    )
    async def withdraw(request: Request) -> Response:
        path = request.path_params
        grant = await service.enter(request, ("client", "admin"), path["task"])
        there = await service.open(path["task"])
        if grant.role == "client":
            check_client(service, grant, path["client"])
        version = await service.change(lambda: there.board.withdraw(path["client"]))
        await service.run(forget, there, [path["client"]])
        service.accepted(request, "withdraw", task=path["task"], client=path["client"])
        return _changed(service, path["task"], version)

    @app.get(
        "/v1/tasks/{task}/teacher",
        tags=TAGS,
        summary="Fetch a teacher",
        description="Safetensors bytes, as `repshare.sharing.wire.decode_teacher` reads them: other clients' class "
        "means, and observations drawn with the seed. The answer to the same question changes only with the board's "
        "version: send its ETag as If-None-Match.",
        responses={
            200: {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}, "headers": {"ETag": _TEXT}},
            304: {"description": "The teacher is the one that the ETag names"},
            **answers(*GUARDED, "invalid"),
        },
        response_class=Response,
        openapi_extra={"parameters": [TASK, *QUESTION]},
    )
    async def teacher(request: Request) -> Response:
        task = request.path_params["task"]
        grant = await service.enter(request, ("client",), task)
        there = await service.open(task)
        client, wants = _question(service, request, grant, there)
        if known := request.headers.get("if-none-match"):
            tag = _tag(there, await service.run(there.board.version), client, wants)
            if tag in known:
                service.seen.note(task, client)
                return Response(status_code=304, headers={"ETag": tag})
        load = await _expect(service, there, wants)
        service.hold(request, load)
        version, body = await service.read(there.board.teach_all, (client, wants), load.bytes)
        service.metrics.bytes_out.inc(len(body))
        service.seen.note(task, client, down=len(body))
        return Response(body, media_type=BYTES, headers={"ETag": _tag(there, version, client, wants)})

    @app.get(
        "/v1/tasks/{task}/news",
        tags=TAGS,
        summary="Wait for a change",
        description="Answers at once if the task's version is not `since`; otherwise when it changes, or after `wait` "
        "seconds with the same version.",
        responses={200: {"model": TaskVersion}, **answers(*GUARDED, "invalid")},
        openapi_extra={"parameters": [TASK, *WAITING]},
    )
    async def news(request: Request) -> Response:
        task = request.path_params["task"]
        await service.enter(request, ("client", "viewer", "admin"), task)
        query = _query(request)
        since = _number(query, "since", 0, 0, 2**63 - 1)
        wait = parse_seconds("wait", query.get("wait", ["20"])[-1], LONGEST_WAIT_SECONDS)

        async def look() -> int:
            there = await service.open(task)
            return await service.run(there.board.version)

        with service.waiting(request):
            return _version(await service.news.wait(task, since, wait, look))

    app.router.route_class = ordinary


def check_client(service: Service, grant: Grant, client: str) -> None:
    """Raise a Problem if the request is not this client's, or cannot be."""
    if not service.options.insecure and client != grant.name:
        raise Problem("forbidden", f"{grant.name} publishes as itself, not as {client[:80]}")
    if not is_client_name(client):
        raise Problem("refused", f"{client[:80]!r} cannot name a client")


def _question(service: Service, request: Request, grant: Grant, there: Open) -> tuple[str, Wants]:
    query = _query(request)
    client = query.get("client", [None])[-1]
    if service.options.insecure:
        if client is None or not is_client_name(client):
            raise Problem("invalid", "an open relay must be told which client asks: client=…")
    elif client is None:
        client = grant.name
    else:
        check_client(service, grant, client)
    for key, most in (("peers", MOST_PEERS), ("classes", MOST_CLASSES)):
        if len(query.get(key, ())) > most:
            raise Problem("invalid", f"{len(query[key])} {key} in one question; at most {most}")
    try:
        there.entry.task.check_peers(client, query.get("peers", ()))
    except Refused as error:
        raise Problem("forbidden", str(error)) from error
    classes = {parse_whole("classes", text, 0, there.entry.task.classes - 1) for text in query.get("classes", ())}
    wants = Wants(
        _number(query, "observations", 1, 0, MOST_OBSERVATIONS),
        _number(query, "seed", 0, 0, MOST_SEED),
        tuple(query.get("peers", ())) or None,
        tuple(sorted(classes)) or None,
    )
    return client, wants


async def _expect(service: Service, there: Open, wants: Wants) -> sizes.Load:
    """Return the bytes that making this teacher will take; where it cannot be much, the most that it can."""
    most = sizes.most_of_teacher(there.entry.task, wants)
    if wants.peers is None and most.bytes < PART_BYTES:
        return most
    return await service.run(sizes.of_teacher, there.board, wants)


def _tag(there: Open, version: int, client: str, wants: Wants) -> str:
    asked = repr((there.entry.identity, version, client, wants)).encode("utf-8", "surrogatepass")
    return f'"{hashlib.blake2b(asked, digest_size=16).hexdigest()}"'


def _query(request: Request) -> Query:
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _number(query: Query, key: str, default: int, least: int, most: int) -> int:
    return parse_whole(key, query[key][-1], least, most) if key in query else default


def parse_whole(key: str, text: str, least: int, most: int) -> int:
    """Return the number in a text, or raise a Problem."""
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and least <= int(text) <= most):
        raise Problem("invalid", f"{key} must be a whole number from {least} to {most}, not {text[:30]!r}")
    return int(text)


def parse_seconds(key: str, text: str, most: float) -> float:
    """Return the seconds in a text, or raise a Problem."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= most:
        raise Problem("invalid", f"{key} must be from 0 to {most:g} seconds, not {text[:30]!r}")
    return seconds


def _changed(service: Service, task: str, version: int) -> Response:
    service.news.tell(task)
    return _version(version)


def _version(version: int) -> Response:
    return Response(b'{"version": %d}' % version, media_type="application/json")


def _several(key: str, item: dict[str, Any], most: int, what: str) -> dict[str, Any]:
    schema = {"type": "array", "items": item, "maxItems": most}
    return {"name": key, "in": "query", "description": what, "schema": schema}


_TEXT = {"schema": {"type": "string"}}
TAKING = ("too-slow", "outdated", "too-large", "refused", "busy")
QUESTION = [
    describe_number("observations", MOST_OBSERVATIONS, "M↓: observations of each class", 1),
    describe_number("seed", MOST_SEED, "of the draw: the same one draws the same", 0),
    _several(
        "peers", {"type": "string"}, MOST_PEERS, "clients to learn from, where the task allows it; default: everyone"
    ),
    _several("classes", {"type": "integer", "minimum": 0}, MOST_CLASSES, "default: all"),
    name("client", "who asks; known by the token, needed only without one", required=False, inside="query"),
    {"name": "If-None-Match", "in": "header", "description": "an ETag", "schema": {"type": "string"}},
]
WAITING = [
    describe_number("since", 2**63 - 1, "the version that is known already", 0),
    describe_number("wait", LONGEST_WAIT_SECONDS, "seconds", 20),
]
