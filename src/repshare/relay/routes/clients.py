"""A client's endpoints: publish a release, withdraw it, fetch a teacher, wait for a change."""

import hashlib
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from repshare.board import Wants
from repshare.errors import LeftOut
from repshare.relay.auth import Grant
from repshare.relay.limits import size_of_rows, size_of_teacher
from repshare.relay.page import activity
from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import NewsQuery, TeacherQuery, parse_query
from repshare.relay.service import LARGE_BYTES, Service


async def publish(service: Service, request: Request) -> Response:
    """Publish a release.

    Safetensors bytes, as `repshare.sharing.wire.encode_release` writes them, in place of the client's last release.
    The same bytes again only renew its age; an older round is refused. In a task that compares clients, so is a part
    that others' parts vote against.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    name, task = opened.entry.name, opened.entry.task
    if task.group_members:
        raise Problem("refused", f"the task {name} is for a masked group: no client's release is taken by itself")
    async with service.receive(request, opened, task.longest_release) as body:
        size = size_of_rows(task, len(body) // task.shortest_row)
        service.charge(request, size)
        board = opened.board
        version, verdict = await service.write(board.store, partial(board.accept_in, client=client, body=body), size)
    for each, reason in verdict.left_out.items():
        await service.run(activity.forget, opened.activity, [each])
        service.note_action(request, "leave-out", task=name, client=each, reason=reason)
    if verdict.refused is not None:
        service.versions.notify(name)
        raise LeftOut(verdict.refused)
    if service.audited:
        digest = hashlib.sha256(body).hexdigest()
        service.note_action(request, "publish", task=name, client=client, sha256=digest, bytes=len(body))
    service.metrics.bytes_in.inc(len(body))
    service.presence.note(name, client, up=len(body))
    service.versions.notify(name)
    return _version(version)


async def withdraw(service: Service, request: Request) -> Response:
    """Withdraw a release.

    For the client itself; the operator has a command. Without a release nothing changes.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    name = opened.entry.name
    version = await service.run_alone(opened.board.withdraw, client)
    await service.run(activity.forget, opened.activity, [client])
    service.note_action(request, "withdraw", task=name, client=client)
    service.versions.notify(name)
    return _version(version)


async def teacher(service: Service, request: Request) -> Response:
    """Fetch a teacher.

    Safetensors bytes, as `repshare.sharing.wire.decode_teacher` reads them: other clients' class means, and
    observations drawn with the seed. The answer to the same question changes only with the task's version.
    """
    grant, opened = await service.enter_task(request, "client")
    name = opened.entry.name
    client, wants = _question(service, request, grant)
    task = opened.entry.task
    size = size_of_rows(task, task.rows * (1 + wants.observations))  # the most that it can be
    if size >= LARGE_BYTES:  # more is known by one more read
        size = await service.run(size_of_teacher, opened.board, wants)
    service.reserve(request, size)
    body = await service.read(opened.board.store, partial(opened.board.teach_in, client=client, wants=wants), size)
    service.metrics.bytes_out.inc(len(body))
    service.presence.note(name, client, down=len(body))
    return Response(body, media_type="application/octet-stream")


async def news(service: Service, request: Request) -> Response:
    """Wait for a change.

    Answers at once if the task's version is not `since`; otherwise when it changes, or after `wait` seconds with the
    same version. The page waits here, too: with --public-page, everyone may.
    """
    public = service.options.public_page
    grant, opened = await service.enter_task(request, public=public)
    name, asked = opened.entry.name, parse_query(NewsQuery, request)
    if asked.client or (grant.role == "client" and not service.options.insecure):
        service.presence.note(name, _caller(service, asked.client, grant))
    with service.waiting(request):
        return _version(await service.versions.wait(name, asked.since, asked.wait, lambda: service.version(name)))


def _caller(service: Service, client: str, grant: Grant) -> str:
    if service.options.insecure:
        if not client:
            raise Problem("invalid", "an open relay must be told which client asks: client=…")
        return client
    if client:
        service.check_client(grant, client)
    return grant.name


def _question(service: Service, request: Request, grant: Grant) -> tuple[str, Wants]:
    asked = parse_query(TeacherQuery, request)
    return _caller(service, asked.client, grant), Wants(asked.observations, asked.seed, precision=asked.precision)


def _version(version: int) -> Response:
    return Response(b'{"version": %d}' % version, media_type="application/json")
