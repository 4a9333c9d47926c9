"""Algorithm 1 over many clients: everyone downloads, trains and uploads; then the server makes what is new of it."""

from collections.abc import Iterator
from dataclasses import replace

from repshare.board import Wants
from repshare.client import Record, make_wants
from repshare.config import Run
from repshare.data import Splits
from repshare.exchange.local import Server
from repshare.methods import Method, find_method
from repshare.simulation.plan import Plan, agree, common_start, make_plan
from repshare.simulation.workers import Workers


def simulate(run: Run, splits: Splits, workers: Workers) -> Iterator[list[Record]]:
    """Carry the run out: after each round, one record for each client."""
    method, plan = find_method(run.method), make_plan(run, splits)
    server = _open(method, plan)
    workers.begin(plan)
    everyone = range(len(plan.parts))
    last = run.setting.rounds or 0
    for round in range(1, last + 1):
        teachers = {client: _teach(server, method, plan, client, round) for client in everyone}
        outcomes = workers.round(teachers)
        for client in everyone:
            release = outcomes[client].release
            if server is not None and release is not None:
                server.accept(plan.name(client), release)
        records = [outcomes[client].record for client in everyone]
        if round % run.setting.eval_every == 0 or round == last:
            records = _test(workers, method, plan, server, records)
        yield records


def _open(method: Method, plan: Plan) -> Server | None:
    task = agree(plan)
    if method.serve is None:
        return None
    common = method.one_model and not plan.run.setting.independent_starts
    return method.serve(task, common_start(plan) if common else None)


def _teach(server: Server | None, method: Method, plan: Plan, client: int, round: int) -> bytes | None:
    if server is None:
        return None
    name = plan.name(client)
    return server.teach(name, make_wants(method.adapt(plan.run.setting.policy), plan.run.seed, name, round))


def _test(workers: Workers, method: Method, plan: Plan, server: Server | None, records: list[Record]) -> list[Record]:
    if method.one_model and server is not None:  # all will go on from the average: test that, once
        accuracy = workers.evaluate({0: server.teach(plan.name(0), Wants(0, 0))})[0]
        return [replace(record, test_accuracy=accuracy) for record in records]
    accuracies = workers.evaluate(dict.fromkeys(range(len(records))))
    return [replace(record, test_accuracy=accuracies[client]) for client, record in enumerate(records)]
