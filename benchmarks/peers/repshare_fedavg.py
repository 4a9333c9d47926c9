"""FedAvg on repshare: inline with 0 workers, else with so many processes."""

from workload import BATCH, LEARNING_RATE, Clock, read_arguments

from repshare.config import Policy
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare_lab.simulation import Inline, Processes, resolve, simulate


def main() -> None:
    workload, clock = read_arguments(), Clock()
    splits = load("mnist")
    setting = Setting(
        samples=workload.clients * workload.samples,
        clients=workload.clients,
        rounds=workload.rounds,
        model=("lenet5",),
        eval_every=workload.rounds,  # only in the last round, which the benchmark does not count
        policy=Policy(batch_size=BATCH, learning_rate=LEARNING_RATE),
    )
    run = Run("FL", 0, resolve(setting, len(splits.train.labels)))
    accuracy = None
    with Processes(workload.workers) if workload.workers else Inline() as workers:
        for records in simulate(run, splits, workers):
            clock.tick()
            accuracy = records[0].test_accuracy
    if accuracy is None:
        raise RuntimeError("there was no test after the last round")
    clock.answer(workload, accuracy)


if __name__ == "__main__":
    main()
