"""What is told of a learner: a round's record, scores on a test, what it shares."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.representations import Floats, Integers

Doubles = NDArray[np.float64]
BINS = 15  # of the calibration error


@dataclass(frozen=True, kw_only=True)
class Record:
    """One client's account of one round: a learner makes it as it trains, and the client adds what it exchanged."""

    round: int = 0
    """Number of the round, from 1."""
    client: str = ""
    """The client's name."""
    ce: float
    """L_CE over the local samples, as each batch was seen."""
    kd: float | None = None
    """L_KD, before λ_KD."""
    disc: float | None = None
    """L_disc, before λ_disc."""
    bound: float | None = None
    """log K − L_disc, in nats: a lower bound on the mutual information with the others' representations, if its
    classes are about equally frequent. With p the share of its largest class, it is at most log(K p) too high."""
    train_accuracy: float
    """0 to 1, over the local samples as each batch was seen."""
    test_accuracy: float | None = None
    """0 to 1, after the round; None in a round without a test."""
    bytes_up: int = 0
    """Bytes that the client sent in this round."""
    bytes_down: int = 0
    """Bytes that it received."""
    seconds: float = 0.0
    """Of this client's own work, testing apart. Of training side by side, its share by samples."""
    trouble: str | None = None
    """Why not everything was exchanged: the exchange was unavailable, refused, or sent something that does not fit, or
    the privacy budget is spent; training continued. Or which part of the training was not finite and so left out."""
    epsilon: float | None = None
    """ε that all releases so far have cost; None where they have no noise."""
    gap: float | None = None
    """CS: the client's own part of the duality gap of the common classifier, when the round began."""
    held_out: float | None = None
    """CS: accuracy of the common classifier on the client's held-out samples, 0 to 1, when the round began.
    With `prefer_own` and too few of them, on its other samples, each judged as if it had not been shared."""
    held_out_alone: float | None = None
    """CS: accuracy on them of a classifier of the client's own samples alone."""
    doubt: str | None = None
    """CS: what the held-out samples show against the other clients' releases, if anything."""
    in_use: str | None = None
    """CS, with `prefer_own`: the classifier in use, of all clients together or of this client alone."""
    others: int | None = None
    """CS, in `join` and `peer`: the number of other clients behind the common classifier; None if not known."""
    test_own: float | None = None
    """Test accuracy with classes weighted as in the client's own data, in a simulation."""
    test_unseen: float | None = None
    """Test accuracy on the classes of which the client has no sample, in a simulation; None where it has of all."""


class Score(NamedTuple):
    """The number of samples of each class that a model got right, and how many there were."""

    right: Integers  # (C,)
    totals: Integers  # (C,)

    @property
    def accuracy(self) -> float:
        """The accuracy, from 0 to 1."""
        return int(self.right.sum()) / int(self.totals.sum())

    @property
    def recalls(self) -> dict[int, float]:
        """The share of each class's samples that is right, by class; of those with samples."""
        return {
            label: int(self.right[label]) / int(self.totals[label]) for label in np.flatnonzero(self.totals).tolist()
        }

    def weighted(self, classes: Integers) -> float | None:
        """The accuracy for these numbers of samples of each class; None where none of those could be tested."""
        tested = (self.totals > 0) & (classes > 0)
        if not tested.any():
            return None
        return float(np.average(self.right[tested] / self.totals[tested], weights=classes[tested]))


def count_hits(scores: NDArray[Any], labels: Integers) -> Score:
    """Score the choice of the class with the largest score (n, C) for each sample."""
    hit = scores.argmax(axis=1) == labels
    right, totals = (np.bincount(each, minlength=scores.shape[1]) for each in (labels[hit], labels))
    return Score(right, totals)


@dataclass(frozen=True)
class Measures:
    """The quality of a client's classifier on its test data. A class without test samples counts nowhere."""

    accuracy: float
    """The share of samples whose class is right, from 0 to 1."""
    balanced_accuracy: float
    """The mean of the classes' recalls."""
    auroc: float | None
    """Area under the ROC curve, 0.5 by chance: the mean over classes, each against the rest. With two classes, that
    of the second. None if all test samples are of one class."""
    calibration_error: float
    """The expected difference between the probability of the chosen class and the share that is right, in 15 bins."""
    recalls: tuple[float | None, ...]
    """For each class, the share of its samples that is recognised; None where there are none."""


def measure(scores: NDArray[Any], probabilities: Doubles, labels: Integers) -> Measures:
    """Measure the choice of the class with the largest score (n, C), with these probabilities (n, C)."""
    score, chosen = count_hits(scores, labels), scores.argmax(axis=1)
    counted = zip(score.right.tolist(), score.totals.tolist(), strict=True)
    recalls = [right / total if total else None for right, total in counted]
    tested = [recall for recall in recalls if recall is not None]
    return Measures(
        accuracy=score.accuracy,
        balanced_accuracy=math.fsum(tested) / len(tested),
        auroc=find_auroc(probabilities, labels),
        calibration_error=find_calibration_error(probabilities[np.arange(len(labels)), chosen], chosen == labels),
        recalls=tuple(recalls),
    )


def find_auroc(probabilities: Doubles, labels: Integers) -> float | None:
    """The mean over classes of the area under the ROC curve, each class against the rest."""
    classes = probabilities.shape[1]
    areas = [_area(probabilities[:, each], labels == each) for each in ([1] if classes == 2 else range(classes))]
    found = [area for area in areas if area is not None]
    return math.fsum(found) / len(found) if found else None


def _area(scores: Doubles, positive: NDArray[np.bool_]) -> float | None:
    """The chance that a positive sample has a larger score than another one; the same score counts half."""
    yes, no = int(positive.sum()), int((~positive).sum())
    if not yes or not no:
        return None
    _, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]  # from 1; equal scores share the mean of theirs
    return float((ranks[positive].sum() - yes * (yes + 1) / 2) / (yes * no))


def find_calibration_error(confidence: Doubles, right: NDArray[np.bool_]) -> float:
    """The mean over samples of |share that is right − mean confidence| in the sample's bin (Guo et al. 2017)."""
    bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)  # each has its upper end
    apart = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return float(np.abs(apart).sum() / len(right))


class Representation(NamedTuple):
    """What stands for a sample in what is shared: its length, and the layers and parameters behind it."""

    numbers: int  # d'
    layers: int  # with parameters, before the head
    parameters: int
    is_inputs: bool  # it is the inputs, up to their order and scale
    source: str = ""  # where it is not the client's own network, what it is

    @property
    def shares_inputs(self) -> bool:
        """Whether an average of it is one of the inputs, or of a fixed function of them that hides nothing."""
        return self.is_inputs or not (self.parameters or self.source)

    def __str__(self) -> str:
        if self.is_inputs:
            return f"{self.numbers} numbers: the inputs themselves"
        if self.source and not self.parameters:
            return f"{self.numbers} numbers of {self.source}"
        if not self.parameters:
            return f"{self.numbers} numbers, computed from the inputs without any parameter"
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{self.numbers} numbers after {layers} with {self.parameters:,} parameters"


class View(NamedTuple):
    """A client's view of some samples: its features of them, and its linear head."""

    features: Floats  # (n, d')
    weight: Floats  # (C, d')
    bias: Floats  # (C,)  zeros where the head has none


class Description(NamedTuple):
    """What a learner shares, for whoever decides about it. Figures are names of fields of a record."""

    representation: Representation
    precision: str
    """Number format of releases."""
    figures: tuple[str, ...]
    """Those of its rounds that may be reported: none is about single samples."""
    name: str
    """What it learns with: a kind of network, or a space."""
    parameters: int
