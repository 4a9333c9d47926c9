"""The same workers as actors of a Ray cluster, on one machine or many."""

from pathlib import Path
from typing import Any, Self

from repshare.errors import ConfigError, RepshareError, WorkerFailed
from repshare.imports import how_to_install
from repshare_lab.simulation.checkpoint import SavedState
from repshare_lab.simulation.plan import Plan
from repshare_lab.simulation.pools import Workers
from repshare_lab.simulation.workers import RESIDENT, Worker


class Cluster(Workers):
    """One worker for each CPU of the cluster. On several machines, checkpoints need a folder that all of them see."""

    def __init__(self, address: str = "local", count: int | None = None, resident: int = RESIDENT) -> None:
        self.address, self.resident = address, resident
        self._wanted = count

    def __enter__(self) -> Self:
        try:
            import ray
        except ImportError as error:
            raise ConfigError(f"a Ray cluster needs Ray: {how_to_install('ray')}") from error
        self._ray: Any = ray
        self._actors: list[Any] = []
        self._ours = not self._ray.is_initialized()
        if self._ours:
            self._ray.init(self.address, log_to_driver=False, configure_logging=False, include_dashboard=False)
        cores = max(1, int(self._ray.cluster_resources()["CPU"]))
        self.count = self._wanted or cores
        if self.count > cores:  # the last of them would be waited for without end
            if self._ours:
                self._ray.shutdown()
            raise ConfigError(f"{self.count} workers are too many for a cluster of {cores} CPUs: at most one for each")
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self._end_actors()
        if self._ours:
            self._ray.shutdown()
        super().__exit__()

    def _hand_over(self, plan: Plan, room: Path, states: Path, shares: list[dict[int, SavedState]]) -> None:
        self._end_actors()
        kept = self._ray.put(plan)  # once on each machine, shared by its workers
        make = self._ray.remote(num_cpus=1)(Worker)
        self._actors = [make.remote(kept, states.absolute(), share, self.resident) for share in shares]

    def _end_actors(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    def _ask(self, verb: str, questions: list[tuple[Any, ...]]) -> list[Any]:
        pairs = zip(self._actors, questions, strict=True)
        answers = [getattr(actor, verb).remote(*question) for actor, question in pairs]
        try:
            return self._ray.get(answers)  # type: ignore[no-any-return]
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, RepshareError):
                raise error.cause from error
            raise WorkerFailed(f"a worker failed:\n{error}") from error
        except self._ray.exceptions.RayActorError as error:
            raise WorkerFailed(f"a worker died: {error}. Resume with --resume") from error
