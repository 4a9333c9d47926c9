"""A masked group in one process: members that meet without HTTP, each in a thread of its own."""

import threading

import numpy as np

from repshare.errors import ConfigError, ExchangeError
from repshare.secure import GroupExchange, Meetings
from repshare.secure import group as groups


class LocalMeetings:
    """What `RelayMeetings` is over HTTP."""

    def __init__(self, meetings, invited):
        self.meetings, self.invited = meetings, invited
        self.put, self.get, self.ready = meetings.put, meetings.get, meetings.ready

    def call(self, *member, patience):
        return self.meetings.call(*member, invited=self.invited, patience=patience)


class LocalGroup:
    """Members of a task, each with a folder."""

    def __init__(self, folder, task, names=("alice", "bob", "carol"), *, patience=20.0):
        self.folder, self.task, self.names, self.patience, self.told = folder, task, names, patience, {}
        self.meetings = Meetings(fewest=max(3, task.group_members))
        groups.POLL_SECONDS = 0.01

    def join(self, name, *, own=None, task=None, company=1, patience=None):
        (self.folder / name).mkdir(exist_ok=True)
        counts = np.full(self.task.classes, 5) if own is None else np.array(own)
        return GroupExchange(
            task or self.task, name, LocalMeetings(self.meetings, self.names), task_name="t",
            folder=self.folder / name, own=counts, company=company, patience=patience or self.patience,
            tell=self.told.setdefault(name, []).append,
        )  # fmt: skip

    def everyone(self, **how):
        return {name: self.join(name, **how) for name in self.names}


def side_by_side(work, names):
    """Call `work` for each name in a thread of its own: what went wrong, by name."""
    trouble = {}

    def one(name):
        try:
            work(name)
        except (ExchangeError, ConfigError) as error:
            trouble[name] = error

    threads = [threading.Thread(target=one, args=[name]) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return trouble


def publish(exchanges, bodies):
    return side_by_side(lambda name: exchanges[name].publish(bodies[name]), bodies)


def gather(exchanges):
    def work(name):
        for _ in range(3000):
            if exchanges[name].gather():
                return
            threading.Event().wait(0.01)

    return side_by_side(work, exchanges)
