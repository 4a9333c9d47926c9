"""FedAvg on Flower's simulation engine: one Ray actor for each core, one thread in each.

A Flower client is made anew for every message, so Adam starts afresh in every round, as in Flower's own examples.
"""

from collections.abc import Iterable

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import LEARNING_RATE, Clock, LeNet5, Workload, read_arguments, read_clients, test, train


class TimedFedAvg(FedAvg):
    """FedAvg that notes when a round is over, and does not go on with fewer clients than it asked."""

    def __init__(self, clients: int, clock: Clock) -> None:
        super().__init__(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
        self.clients, self.clock = clients, clock

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Average as FedAvg does."""
        replies = list(replies)
        trained = sum(not reply.has_error() for reply in replies)
        if trained != self.clients:
            raise RuntimeError(f"round {server_round}: {trained} of {self.clients} clients have trained")
        aggregate = super().aggregate_train(server_round, replies)
        self.clock.tick()
        return aggregate


def make_client_app(workload: Workload) -> ClientApp:
    app = ClientApp()

    @app.train()
    def train_client(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        images, labels = read_clients(workload)[int(context.node_config["partition-id"])]
        model = LeNet5()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        train(model, torch.optim.Adam(model.parameters(), lr=LEARNING_RATE), images, labels)
        metrics = MetricRecord({"num-examples": len(labels)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    return app


def make_server_app(workload: Workload) -> ServerApp:
    app, clock = ServerApp(), Clock()

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        torch.manual_seed(0)
        model = LeNet5()
        strategy = TimedFedAvg(workload.clients, clock)
        result = strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=workload.rounds)
        model.load_state_dict(result.arrays.to_torch_state_dict())
        clock.answer(workload, test(model, workload))

    return app


def main() -> None:
    workload = read_arguments()
    run_simulation(
        make_server_app(workload),
        make_client_app(workload),
        num_supernodes=workload.clients,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
            "init_args": {"num_cpus": workload.workers, "include_dashboard": False},
        },
    )


if __name__ == "__main__":
    main()
