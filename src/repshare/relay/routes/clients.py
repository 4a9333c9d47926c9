"""A client's endpoints: publish a release, withdraw it, fetch a teacher, wait for a change."""

import hashlib
from typing import get_args
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from repshare.board import Wants, longest_release
from repshare.config import Precision
from repshare.errors import Refused
from repshare.relay import sizes
from repshare.relay.auth import Grant, is_client_name
from repshare.relay.background import forget
from repshare.relay.problems import Problem
from repshare.relay.routes.endpoint import (
    BINARY,
    BODY,
    BYTES,
    CLIENT,
    SUCCESS,
    TEXT,
    Endpoints,
    number,
    parameter,
    several,
)
from repshare.relay.routes.schemas import MOST_PEERS, TaskVersion, parse_seconds, parse_whole
from repshare.relay.service import LARGE_BYTES, Service
from repshare.relay.tasks import OpenTask

MOST_OBSERVATIONS = 1000  # of a class, in one teacher
MOST_CLASSES = 1000  # in one question
LONGEST_WAIT_SECONDS = 60.0
MOST_SEED, MOST_VERSION = 2**64 - 1, 2**63 - 1
PRECISIONS = get_args(Precision)

RELEASE = "/v1/tasks/{task}/clients/{client}/release"
BODY_PROBLEMS = ("too-slow", "outdated", "too-large", "refused", "busy")

CALLER = parameter("client", "who asks; known by the token, needed only without one", CLIENT["schema"], required=False)

Query = dict[str, list[str]]

endpoints = Endpoints("clients")


@endpoints.add("PUT", RELEASE, TaskVersion, problems=("malformed", *BODY_PROBLEMS), body=BODY)
async def publish(service: Service, request: Request) -> Response:
    """Publish a release.

    Safetensors bytes, as `repshare.sharing.wire.encode_release` writes them, in place of the client's last release.
    The same bytes again only renew its age; an older round is refused.
    """
    opened, client = await service.enter_own(request)
    name, task = opened.entry.name, opened.entry.task
    async with service.receive(request, opened, longest_release(task)) as body:
        load = sizes.of_release(task, body)
        service.spend(request, load)
        board = opened.board
        version = await service.write(board.accept_all, (client, body), load.bytes, board.prepare_all)
    if service.audited:
        digest = hashlib.sha256(body).hexdigest()
        service.accepted(request, "publish", task=name, client=client, sha256=digest, bytes=len(body))
    service.metrics.bytes_in.inc(len(body))
    service.presence.note(name, client, up=len(body), published=True)
    service.versions.notify(name)
    return _version(version)


@endpoints.add("DELETE", RELEASE, TaskVersion, problems=["invalid"])
async def withdraw(service: Service, request: Request) -> Response:
    """Withdraw a release.

    For the client itself, and for admins. Without a release nothing changes.
    """
    grant, opened = await service.enter_task(request, "client", "admin")
    name, client = opened.entry.name, request.path_params["client"]
    if grant.role == "client":
        service.check_client(grant, client)
    version = await service.change(lambda: opened.board.withdraw(client))
    await service.run(forget, opened, [client])
    service.accepted(request, "withdraw", task=name, client=client)
    service.versions.notify(name)
    return _version(version)


@endpoints.add(
    "GET",
    "/v1/tasks/{task}/teacher",
    {
        200: {"description": SUCCESS, "content": BINARY, "headers": {"ETag": TEXT}},
        304: {"description": "The teacher is the one that the ETag names"},
    },
    problems=["invalid"],
    parameters=[
        parameter("observations", "M↓: observations of each class", number(MOST_OBSERVATIONS, default=1)),
        parameter("seed", "of the draw: the same one draws the same", number(MOST_SEED, default=0)),
        parameter(
            "peers",
            "clients to learn from, where the task allows it; default: everyone",
            several(TEXT["schema"], MOST_PEERS),
        ),
        parameter("classes", "default: all", several({"type": "integer", "minimum": 0}, MOST_CLASSES)),
        parameter("precision", "number format of the answer", {"enum": list(PRECISIONS), "default": "fp32"}),
        CALLER,
        parameter("If-None-Match", "an ETag", TEXT["schema"], "header"),
    ],
)
async def teacher(service: Service, request: Request) -> Response:
    """Fetch a teacher.

    Safetensors bytes, as `repshare.sharing.wire.decode_teacher` reads them: other clients' class means, and
    observations drawn with the seed. The answer to the same question changes only with the board's version: send its
    ETag as If-None-Match.
    """
    grant, opened = await service.enter_task(request, "client")
    name = opened.entry.name
    client, wants = _question(service, request, grant, opened)
    if known := request.headers.get("if-none-match"):
        tag = _tag(opened, await service.run(opened.board.version), client, wants)
        if tag in known:
            service.presence.note(name, client)
            return Response(status_code=304, headers={"ETag": tag})
    load = await _expect(service, opened, wants)
    service.hold(request, load)
    version, body = await service.teach(opened.board, client, wants, load)
    service.metrics.bytes_out.inc(len(body))
    service.presence.note(name, client, down=len(body))
    return Response(body, media_type=BYTES, headers={"ETag": _tag(opened, version, client, wants)})


@endpoints.add(
    "GET",
    "/v1/tasks/{task}/news",
    TaskVersion,
    problems=["invalid"],
    parameters=[
        parameter("since", "the version that is known already", number(MOST_VERSION, default=0)),
        parameter("wait", "seconds", number(LONGEST_WAIT_SECONDS, default=20)),
        CALLER,
    ],
)
async def news(service: Service, request: Request) -> Response:
    """Wait for a change.

    Answers at once if the task's version is not `since`; otherwise when it changes, or after `wait` seconds with the
    same version.
    """
    grant, opened = await service.enter_task(request, "client", "viewer", "admin")
    name, query = opened.entry.name, _query(request)
    if "client" in query or (grant.role == "client" and not service.options.insecure):
        service.presence.note(name, _caller(service, query, grant))
    since = _number(query, "since", 0, MOST_VERSION)
    wait = parse_seconds("wait", query.get("wait", ["20"])[-1], LONGEST_WAIT_SECONDS)
    with service.waiting(request):
        return _version(await service.versions.wait(name, since, wait, lambda: service.version(name)))


def _caller(service: Service, query: Query, grant: Grant) -> str:
    client = query.get("client", [None])[-1]
    if service.options.insecure:
        if client is None or not is_client_name(client):
            raise Problem("invalid", "an open relay must be told which client asks: client=…")
        return client
    if client is not None:
        service.check_client(grant, client)
    return grant.name


def _question(service: Service, request: Request, grant: Grant, opened: OpenTask) -> tuple[str, Wants]:
    query, task = _query(request), opened.entry.task
    client = _caller(service, query, grant)
    for key, most in (("peers", MOST_PEERS), ("classes", MOST_CLASSES)):
        if len(query.get(key, ())) > most:
            raise Problem("invalid", f"{len(query[key])} {key} in one question; at most {most}")
    try:
        task.check_peers(client, query.get("peers", ()))
    except Refused as error:
        raise Problem("forbidden", str(error)) from error
    classes = {parse_whole("classes", text, task.classes - 1) for text in query.get("classes", ())}
    if (precision := query.get("precision", ["fp32"])[-1]) not in PRECISIONS:
        raise Problem("invalid", f"precision must be one of {', '.join(PRECISIONS)}, not {precision[:30]!r}")
    wants = Wants(
        _number(query, "observations", 1, MOST_OBSERVATIONS),
        _number(query, "seed", 0, MOST_SEED),
        tuple(query.get("peers", ())) or None,
        tuple(sorted(classes)) or None,
        precision,
    )
    return client, wants


async def _expect(service: Service, opened: OpenTask, wants: Wants) -> sizes.Load:
    """Return the bytes that making this teacher will take; where it cannot be much, the most that it can.

    To find out more is one more read, by another thread: for an answer of this size, as long as making it.
    """
    most = sizes.most_of_teacher(opened.entry.task, wants)
    if wants.peers is None and most.bytes < LARGE_BYTES:
        return most
    return await service.run(sizes.of_teacher, opened.board, wants)


def _tag(opened: OpenTask, version: int, client: str, wants: Wants) -> str:
    asked = repr((opened.entry.identity, version, client, wants)).encode("utf-8", "surrogatepass")
    return f'"{hashlib.blake2b(asked, digest_size=16).hexdigest()}"'


def _query(request: Request) -> Query:
    return parse_qs(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _number(query: Query, key: str, default: int, most: int) -> int:
    return parse_whole(key, query[key][-1], most) if key in query else default


def _version(version: int) -> Response:
    return Response(b'{"version": %d}' % version, media_type="application/json")
