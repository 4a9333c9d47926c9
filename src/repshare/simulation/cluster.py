"""The same workers as actors of a Ray cluster, on one machine or many."""

from pathlib import Path
from typing import Any, Self

from repshare.errors import ConfigError, RepshareError, WorkerFailed
from repshare.simulation.checkpoint import SavedState
from repshare.simulation.plan import Plan
from repshare.simulation.pools import WorkerPool, make_room, open_scratch
from repshare.simulation.workers import RESIDENT, Worker


class Cluster(WorkerPool):
    """One worker for each CPU of the cluster. On several machines, checkpoints need a folder that all of them see."""

    def __init__(self, address: str = "local", count: int | None = None, resident: int = RESIDENT) -> None:
        self.address, self.resident = address, resident
        self._wanted = count

    def __enter__(self) -> Self:
        ray = _import_ray()
        self._ours = not ray.is_initialized()
        if self._ours:
            ray.init(self.address, log_to_driver=False, configure_logging=False, include_dashboard=False)
        cores = max(1, int(ray.cluster_resources()["CPU"]))
        self.count = self._wanted or cores
        if self.count > cores:  # the last of them would be waited for without end
            if self._ours:
                ray.shutdown()
            raise ConfigError(f"{self.count} workers are too many for a cluster of {cores} CPUs: at most one for each")
        self._scratch = open_scratch()
        self._actors: list[Any] = []
        return self

    def __exit__(self, *_: object) -> None:
        ray = _import_ray()
        for actor in self._actors:
            ray.kill(actor)
        if self._ours:
            ray.shutdown()
        self._scratch.cleanup()

    def _hand_over(self, plan: Plan, folder: Path | None, shares: list[dict[int, SavedState]]) -> None:
        ray = _import_ray()
        for actor in self._actors:
            ray.kill(actor)
        kept = ray.put(plan)  # once on each machine, shared by its workers
        make = ray.remote(num_cpus=1)(Worker)
        with make_room(self._scratch) as room:
            folder = (folder or room).absolute()
            self._actors = [make.remote(kept, folder, share, self.resident) for share in shares]

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        ray = _import_ray()
        answers = [
            getattr(actor, verb).remote(*question) for actor, question in zip(self._actors, questions, strict=True)
        ]
        try:
            return ray.get(answers)  # type: ignore[no-any-return]
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RepshareError):
                raise error.cause from error
            raise WorkerFailed(f"a worker failed:\n{error}") from error
        except ray.exceptions.RayActorError as error:
            raise WorkerFailed(f"a worker died: {error}. Go on from the last checkpoint with --resume") from error


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("a Ray cluster needs Ray: pip install 'repshare[ray]'") from error
    return ray
