"""Collaborative learning by sharing class sums of representations.

Client      one party: a model and data of its own, and an exchange with others
Policy      what a client chooses: how it learns, what it lets others see
Board       what is between clients; it never trains
Task        what the clients of a collaboration agree on
Party       what `repshare join` trains
CommonSpaceClassifier  a client of CS in scikit-learn's manner, for tables, without PyTorch
Agreement      what the clients of a common classifier (method CS) agree on: a space, a loss
space       feature maps that all clients compute alike: Patches, Fourier, Backbone, choose
load_classifier       the common classifier that `repshare join` kept, for use on its own
LeNet5, ResNet9, ResNet18, split      the paper's models; any other classifier as features and head
errors      everything raised on purpose
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from repshare import imports

if TYPE_CHECKING:
    from repshare import errors, space
    from repshare.board import Board
    from repshare.client import Client, Record
    from repshare.config import Policy
    from repshare.exchange import Exchange, LocalExchange
    from repshare.exchange.peer import PeerExchange
    from repshare.exchange.relay import RelayExchange
    from repshare.network.models import LeNet5, ResNet9, ResNet18, split
    from repshare.party.classifier import load_classifier
    from repshare.party.estimator import CommonSpaceClassifier
    from repshare.party.party import Party
    from repshare.sharing.task import Task
    from repshare.space.agreement import Agreement
    from repshare.stores import MemoryStore

__version__ = "0.2.0"
__all__ = [
    "Agreement",
    "Board",
    "Client",
    "CommonSpaceClassifier",
    "Exchange",
    "LeNet5",
    "LocalExchange",
    "MemoryStore",
    "Party",
    "PeerExchange",
    "Policy",
    "Record",
    "RelayExchange",
    "ResNet9",
    "ResNet18",
    "Task",
    "errors",
    "load_classifier",
    "space",
    "split",
]

_HOMES = {
    "repshare.board": ("Board",),
    "repshare.client": ("Client", "Record"),
    "repshare.space.agreement": ("Agreement",),
    "repshare.config": ("Policy",),
    "repshare.exchange": ("Exchange", "LocalExchange"),
    "repshare.exchange.peer": ("PeerExchange",),
    "repshare.exchange.relay": ("RelayExchange",),
    "repshare.party.classifier": ("load_classifier",),
    "repshare.party.estimator": ("CommonSpaceClassifier",),
    "repshare.party.party": ("Party",),
    "repshare.network.models": ("LeNet5", "ResNet9", "ResNet18", "split"),
    "repshare.stores": ("MemoryStore",),
    "repshare.sharing.task": ("Task",),
}


def __getattr__(name: str) -> Any:
    # Looked up when first used: PyTorch takes a second to import, and not everything here needs it.
    for home, names in _HOMES.items():
        if name in names:
            try:
                return getattr(import_module(home), name)
            except ModuleNotFoundError as error:
                raise imports.missing(error) from error
    if name in __all__:  # a module
        return import_module(f"repshare.{name}")
    raise AttributeError(f"module 'repshare' has no attribute {name!r}")
