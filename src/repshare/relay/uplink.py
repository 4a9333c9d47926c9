"""An uplink: joins a relay's task to the same task of another relay, upstream, so that both are one.

It publishes the exact total of this relay's clients there, as one client, and what comes back (the total of everybody
else) here, as one more client. Neither relay counts anyone twice: what goes up is without what came down, and the other
way round. All that it must know is in the two relays, so that it may be stopped, killed and started again at any time.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict
from urllib.parse import quote

from repshare.board.joining import accept_total, longest_total, read_total
from repshare.errors import ConfigError, ExchangeError, Outdated, RepshareError
from repshare.exchange.relay import BYTES, RelayExchange
from repshare.relay.monitoring.logs import log_event
from repshare.relay.tasks import OpenTask
from repshare.sharing import wire
from repshare.sharing.joined import Total
from repshare.sharing.task import Task

UPSTREAM = "(upstream)"  # the client that everybody else is, at this relay
ALIKE = ("classes", "dimension", "norm_bound", "minimum_count", "weighted", "aggregation", "space")  # fields of tasks
REFRESHED = 1 / 4  # of max_age, after which a total is published again


class Uplink:
    """A task of this relay and, upstream, the same task. Used from one thread."""

    def __init__(
        self, opened: OpenTask, exchange: RelayExchange, least_clients: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`least_clients`: a class that fewer clients share does not leave this relay."""
        self._opened, self._exchange, self._least, self._clock = opened, exchange, least_clients, clock
        self._path = ""  # upstream, once it is known
        self._sent: Total | None = None  # last; None: not known
        self._received: Total | None = None
        self._tag: str | None = None
        self._seen: int | None = None  # this relay's version when it was looked at last
        self._sent_at = self._received_at = -float("inf")

    def connect(self) -> None:
        """Find out who this relay is upstream. Raises ConfigError if the tasks cannot be joined."""
        member = self._exchange.describe()
        check_alike(self._opened.entry.task, member.agreed)
        self._max_age_there = member.agreed.max_age
        self._path = f"{self._exchange.task_path()}/relays/{quote(member.client, safe='')}/total"

    def step(self) -> None:
        """Publish both totals where they have changed. An error of either relay is logged; the next step repeats it."""
        try:
            if not self._path:
                self.connect()
            self._send()
            self._receive()
        except ConfigError:
            raise
        except ExchangeError as error:
            log_event("upstream is unavailable or refuses", logging.WARNING, reason=str(error))
        except RepshareError as error:
            log_event("this relay's store is unavailable or refuses", logging.WARNING, reason=str(error))

    def leave(self) -> None:
        """Withdraw both totals: the relays are apart again."""
        self.connect()
        self._exchange.connection.ask("DELETE", self._path)
        self._opened.board.withdraw(UPSTREAM)

    def _send(self) -> None:
        board, number = self._opened.board, self._opened.entry.number
        due = _is_due(self._max_age_there, self._clock() - self._sent_at)
        if not due and board.version() == self._seen:
            return
        version, total = read_total(board, number, UPSTREAM)
        total = total.part(total.sums[:, -1] >= self._least)
        if due or not total.says_the_same(self._sent):
            again = self._sent.again + 1 if self._sent else 0
            self._put(total._replace(again=again))
            self._sent, self._sent_at = total._replace(again=again), self._clock()
        self._seen = version

    def _put(self, total: Total) -> None:
        ask, clients = self._exchange.connection.ask, int(total.sums[:, -1].max(initial=0))
        if not clients:
            ask("DELETE", self._path)
        else:
            body = wire.encode_total(total)
            try:
                ask("PUT", self._path, body=body, headers={"Content-Type": BYTES})
            except Outdated:  # this relay's database is an older one, from a backup
                ask("DELETE", self._path)
                ask("PUT", self._path, body=body, headers={"Content-Type": BYTES})
        log_event("published upstream", logging.DEBUG, clients=clients)

    def _receive(self) -> None:
        known = {"If-None-Match": self._tag} if self._tag else None
        limit = longest_total(self._opened.entry.task)
        reply = self._exchange.connection.ask("GET", self._path, headers=known, limit=limit)
        due = _is_due(self._opened.entry.task.max_age, self._clock() - self._received_at)
        if reply.status == 304:
            total = self._received
        else:
            reply.check_type(BYTES)
            total = wire.decode_total(reply.body)
        if total is not None and (due or not total.says_the_same(self._received)):
            total = total._replace(again=self._received.again + 1 if self._received else 0)
            self._keep(total)
            self._received, self._received_at = total, self._clock()
        self._tag = reply.headers.get("ETag")

    def _keep(self, total: Total) -> None:
        board, number, clients = self._opened.board, self._opened.entry.number, int(total.sums[:, -1].max(initial=0))
        if not clients:
            board.withdraw(UPSTREAM)
        else:
            body = wire.encode_total(total)
            try:
                accept_total(board, number, UPSTREAM, body)
            except Outdated:  # upstream's database is an older one, from a backup
                board.withdraw(UPSTREAM)
                accept_total(board, number, UPSTREAM, body)
        log_event("received from upstream", logging.DEBUG, clients=clients)


def check_alike(here: Task, upstream: Task) -> None:
    """Raise ConfigError if releases of one task could be refused in the other, or mean something else there."""
    values, there = asdict(here), asdict(upstream)
    if differ := [
        f"{name} {values[name]} here, {there[name]} upstream" for name in ALIKE if values[name] != there[name]
    ]:
        raise ConfigError(f"the tasks cannot be joined: {', '.join(differ)}. Create both with the same values")
    if here.aggregation != "mean":
        raise ConfigError(f"the tasks cannot be joined: {here.aggregation} needs every client's means in one place")


def _is_due(max_age: float | None, seconds: float) -> bool:
    """Return whether a total of this age must be published again, so that it does not expire."""
    return max_age is not None and seconds > REFRESHED * max_age
