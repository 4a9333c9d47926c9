"""FedAvg on apple's pfl, with one process of all threads or with several of one thread each.

pfl trains all users of a process in one model with a new optimizer each time, so Adam starts afresh in every round.
It joins its process group when it is imported: what it reads from the environment must be there before.
"""

import os
import socket
import subprocess
import sys

import torch
from workload import BATCH, LEARNING_RATE, Clock, LeNet5, Workload, read_arguments, read_clients, test


def join(workers: int) -> list[subprocess.Popen[bytes]]:
    """Be the first of several processes, and start the others as copies of this one."""
    if workers == 1 or "PFL_WORKER_RANK" in os.environ:
        return []
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join([f"localhost:{port}"] * workers)
    command = [sys.executable, *sys.argv]
    others = [subprocess.Popen(command, env={**os.environ, "PFL_WORKER_RANK": str(rank)}) for rank in range(1, workers)]
    os.environ["PFL_WORKER_RANK"] = "0"
    return others


def federate(workload: Workload, clock: Clock) -> LeNet5:
    """Run pfl's federated averaging, its evaluation left out."""
    import numpy as np
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam.base import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Tick(TrainingProcessCallback):
        """Notes when a round is over."""

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            """Never ask to stop."""
            clock.tick()
            return False, Metrics()

    clients = read_clients(workload)

    def make_dataset(user: int) -> Dataset:
        images, labels = clients[user]
        order = torch.randperm(len(labels))
        return Dataset((images[order], labels[order]), user_id=str(user))

    np.random.seed(0)  # pfl's processes agree on whom to sample by NumPy's global seed
    model = LeNet5()
    users = FederatedDataset(make_dataset, get_user_sampler("minimize_reuse", list(range(workload.clients))))
    algorithm = FederatedAveraging()
    algorithm._current_central_iteration = 1  # it would evaluate in round 0
    algorithm.run(
        NNAlgorithmParams(
            central_num_iterations=workload.rounds + 1,
            evaluation_frequency=workload.rounds + 2,
            train_cohort_size=workload.clients,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=users, val_data=users),
        PyTorchModel(model, torch.optim.Adam, torch.optim.SGD(model.parameters(), lr=1.0)),
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH),
        callbacks=[Tick()],
        send_metrics_to_platform=False,
    )
    return model


def main() -> None:
    workload, clock = read_arguments(), Clock()
    others = join(workload.workers)
    torch.set_num_threads(1 if workload.workers > 1 else os.cpu_count() or 1)
    torch.manual_seed(0)
    model = federate(workload, clock)
    if os.environ.get("PFL_WORKER_RANK", "0") == "0":
        clock.answer(workload, test(model, workload))
    failed = max((other.wait() for other in others), default=0)
    sys.stdout.flush()
    os._exit(failed)  # the threads of torch.distributed now and then abort an ordinary exit


if __name__ == "__main__":
    main()
