"""The options of a party's work, and its client: made of its own file, a policy and a task."""

import math
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from repshare.cli.terminal import watch_mapping
from repshare.config import FEWEST, Policy
from repshare.errors import ConfigError
from repshare.fields import check_least, check_within

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.party.party import Party
    from repshare.sharing.task import Task


@dataclass(frozen=True)
class WorkOptions:
    """The course of a party's work: rounds, state, output."""

    rounds: int | None = None
    """Stop after this round. Default: continue until Ctrl-C."""
    state: Path | None = None
    """Folder with the state, from which the same command continues. Default: repshare-TASK-CLIENT."""
    restart: bool = False
    """Delete the rounds in the state folder, withdraw what was shared, and start at round 1.
    The privacy ledger is kept."""
    dry_run: bool = False
    """Only look at the data (rows used and left out, missing values, classes, columns that may be in another unit) and
    show what would leave this machine in a round. Nothing is sent or written."""
    agreement: Path | None = None
    """File with the agreement of a common classifier, as `repshare relay tasks describe` prints it.
    A relay whose task states another one is refused.
    Peers and --dry-run need it, unless the party's file has it."""
    approve: Literal["ask"] | None = None
    """ask: show what would leave, and wait for yes before anything does. The answer is in the state folder's audit log.
    Default: do not ask."""
    compare: bool = False
    """Train controls beside, with the same samples but no other client, and tell all accuracies. Nothing of them
    leaves. One is the same method alone; the other, if the party has a model, a network alone with short features
    (λ_length 10, or the policy's)."""
    seed: int = 0
    """Seed of the starting weights and of all random choices."""
    pace: float = 0.0
    """Minimum duration of a round, so that slower parties can keep up."""
    device: str = "cpu"
    """PyTorch device on which to train. auto: a GPU (cuda, mps) if there is one, else cpu."""
    threads: int | None = None
    """Number of threads. Default: PyTorch's choice."""
    keep_vectors: bool = False
    """Keep the vectors of a backbone, in a folder beside the state folder, so that another start maps no sample again.
    They tell nearly as much as your samples; only you may read them."""
    report: bool = False
    """Send accuracies, or with a budget the ε spent, and the kind of model to the relay's page after each round.
    None of it is needed to take part; --dry-run names the figures."""

    def __post_init__(self) -> None:
        check_least(self, rounds=1, threads=1)
        check_within(self, 0, 1_000_000, "pace")


def choose_folder(work: WorkOptions, task: str, name: str) -> Path:
    """The folder of a client's state: by default below the current folder, whatever names a relay gives."""
    return work.state or Path(re.sub(r"[^\w.\-]+", "-", f"repshare-{task}-{name}"))


def make_client(
    reference: str,
    name: str,
    work: WorkOptions,
    policy: Policy,
    task: "Task | None" = None,
    *,
    folder: Path | None = None,
    accept_space: bool = False,
) -> "Client":
    """Make the client of `file.py:function`. It shares no average of fewer samples than the task's or its own bound.

    It learns from no vector that is longer than the task's bound. In a common space, its method is CS, and the secret
    of its state folder decides which samples are held out. `accept_space`: a task's space may be any, without
    a copy of its agreement.
    """
    import torch

    from repshare.client import Client
    from repshare.methods import CS, RS
    from repshare.party.audit import read_limits
    from repshare.party.party import agree, read_data
    from repshare.party.state import read_secret
    from repshare.space.agreement import check_usual

    if work.threads is not None:
        torch.set_num_threads(work.threads)
    party = _load(reference, name, work)
    space = agree(party, task)
    if space is not None:
        # beside the state folder, which begins with the client's first round
        cache = folder.with_name(f"{folder.name}.vectors") if folder is not None and work.keep_vectors else None
        watch = watch_mapping(Console(stderr=True))
        space = space._replace(space=space.space.attended(cache=cache, watch=watch))
    data, test = read_data(party, space)
    limits = read_limits()
    limits.check_space("" if space is None else space.space.name)
    policy = _merge_policies(party, policy, max(limits.minimum_count, 1 if task is None else task.minimum_count))
    if policy.prefer_own is None:
        policy = replace(policy, prefer_own=space is not None)
    if task is not None and task.group_members:
        policy = replace(policy, m_up=0)  # observations are one client's own, and no sum hides them
    client = Client(
        party.model,
        data,
        name=name,
        policy=policy,
        method=RS if space is None else CS,
        space=space,
        classes=None if space is None or task is None else task.classes,
        test=test,
        seed=work.seed,
        device=work.device,
        head=party.head,
        norm_bound=math.inf if task is None else task.norm_bound,
        secret=None if folder is None else read_secret(folder),
    )
    if not (party.space or party.accept_space or accept_space):
        check_usual(client.learner.unusual())
    return client


def _load(reference: str, name: str, work: WorkOptions) -> "Party":
    from repshare.party.party import load_party
    from repshare.randomness import derive
    from repshare.space.agreement import read_agreement

    party = load_party(reference, derive(work.seed, name, "model"))
    if work.agreement is None:
        return party
    return replace(party, space=read_agreement(_read(work.agreement), module=party.backbone))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} cannot be read: {getattr(error, 'strerror', 'not text')}") from error


def _merge_policies(party: "Party", given: Policy, least: int) -> Policy:
    """The party's policy, with the options of the command line that differ from the default.

    Unless minimum_count says otherwise, no average of fewer than three samples leaves, whatever the task allows.
    """
    default = Policy()
    names = [field.name for field in fields(Policy)]
    changed = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(default, name)}
    policy = replace(party.policy or default, **changed)
    if policy.m_up and policy.n_avg < least:
        raise ConfigError(
            f"the task, or the site, takes no average of fewer than {least} samples, but n_avg is {policy.n_avg}"
        )
    if policy.m_up and policy.n_avg < FEWEST and policy.minimum_count is None:
        raise ConfigError(
            f"with n_avg = {policy.n_avg}, every observation would show single samples' features: raise --n-avg to "
            f"{FEWEST}, or give --minimum-count {policy.n_avg} if they may leave"
        )
    return replace(policy, minimum_count=max(policy.fewest, least))
