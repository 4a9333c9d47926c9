"""Metrics of a relay, for Prometheus."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Counters of one relay process."""

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self.seconds = Histogram(
            "repshare_request_seconds",
            "Time from a request's head to the end of its answer",
            ["method", "route", "status"],
            buckets=SECONDS,
            registry=self._registry,
        )
        self.refusals = Counter("repshare_refusals", "Requests refused", ["kind"], registry=self._registry)
        transferred = Counter("repshare_bytes", "Bytes of releases and teachers", ["way"], registry=self._registry)
        self.bytes_in, self.bytes_out = transferred.labels("in"), transferred.labels("out")
        self.expired = Counter("repshare_expired_releases", "Releases that expired", registry=self._registry)
        self.abandoned = Counter("repshare_abandoned_answers", "Answers that were not read", registry=self._registry)
        gauge = Gauge("repshare_waiting_requests", "Requests that wait for changes", registry=self._registry)
        gauge.set_function(waiting)

    def show(self) -> bytes:
        """All counters, as Prometheus reads them."""
        return generate_latest(self._registry)
