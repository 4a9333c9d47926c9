"""Metrics of a relay, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters of one relay process."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._seconds = Histogram(
            "repshare_request_seconds",
            "Time from a request's head to the end of its answer",
            ["method", "route", "status"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self._refusals = Counter("repshare_refusals", "Requests refused", ["kind"], registry=self._registry)
        self._bytes = Counter("repshare_bytes", "Bytes of releases and teachers", ["way"], registry=self._registry)
        self._expired = Counter("repshare_expired_releases", "Releases that expired", registry=self._registry)
        self.abandoned = Counter("repshare_abandoned_answers", "Answers that were not read", registry=self._registry)
        gauge = Gauge("repshare_waiting_requests", "Requests that wait for changes", registry=self._registry)
        gauge.set_function(waiting)
        self._children: dict[
            tuple[str, str, int], Histogram
        ] = {}  # finding one by its labels takes longer than using it
        self.bytes_in, self.bytes_out = self._bytes.labels("in"), self._bytes.labels("out")

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = (method, route, status)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._seconds.labels(*map(str, key))
        child.observe(seconds)

    def refused(self, kind: str) -> None:
        """Count a refusal."""
        self._refusals.labels(kind).inc()

    def expired(self, releases: int) -> None:
        """Count releases that grew too old."""
        self._expired.inc(releases)

    def show(self) -> bytes:
        """Return all counters, as Prometheus reads them."""
        return generate_latest(self._registry)
