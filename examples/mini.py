"""RS and CS, whole, in NumPy, without the package. Four parties have 100 digits each: python examples/mini.py."""

from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits

Array = Any  # a NumPy array; its shape stands beside it
CLASSES = 10
OBSERVED = 5  # samples averaged into an observation, n_avg
SHRINKAGE = 1e-4  # λ of CS. In the package it is ρ / n, and clients vote on ρ


class Release(NamedTuple):
    """Row c is a sum over a party's samples of class c (RS), or over all of them (CS); counts are of classes."""

    sums: Array  # (C, d)
    counts: Array  # (C,)


def add_up(releases: list[Release]) -> Release:
    """Add releases row by row: a board does no other arithmetic."""
    return Release(*(np.sum(each, axis=0) for each in zip(*releases, strict=True)))


def through_softmax(probabilities: Array, gradient: Array) -> Array:
    """Chain rule of softmax: the gradient by logits, from the gradient by probabilities."""
    return probabilities * (gradient - (probabilities * gradient).sum(axis=-1, keepdims=True))


def one_hot(labels: Array) -> Array:  # (n, C)
    """Targets: 1 for a sample's class."""
    return np.eye(CLASSES)[labels]


def softmax(logits: Array) -> Array:
    """Probabilities of the last dimension."""
    exponents = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return exponents / exponents.sum(axis=-1, keepdims=True)


# RS, the paper's method. A party owns a network: features φ(x) = tanh(x A + a), and a head τ(φ) = φ V + v. It shares
# the mean of its features of each class, and one observation of each class, the mean of a few samples' features. It
# learns by  L = L_CE + λ_KD · L_KD + λ_disc · L_disc.
class Targets(NamedTuple):
    """What comes back: of each class, the mean of everybody's features, and one observation by another party."""

    means: Array  # (C, d)
    observations: Array  # (C, d)


class Network:
    """One hidden layer, trained by Adam."""

    def __init__(self, inputs: int, features: int, seed: int, kd: float = 10.0, disc: float = 1.0) -> None:
        self.kd, self.disc, self.steps = kd, disc, 0  # λ_KD and λ_disc
        draw = np.random.default_rng(seed).standard_normal
        self.weights = [draw((inputs, features)) / inputs**0.5, np.zeros(features)]  # A, a
        self.weights += [draw((features, CLASSES)) / features**0.5, np.zeros(CLASSES)]  # V, v
        self.moments = [(np.zeros_like(each), np.zeros_like(each)) for each in self.weights]

    def features(self, inputs: Array) -> Array:  # (n, d)
        """φ"""
        return np.tanh(inputs @ self.weights[0] + self.weights[1])

    def head(self, features: Array) -> Array:  # (n, C)
        """τ"""
        return features @ self.weights[2] + self.weights[3]

    def step(self, inputs: Array, labels: Array, targets: Targets, rate: float = 1e-3) -> None:
        """Take a step down the gradient of L."""
        self.steps += 1
        gradients = self.gradients(inputs, labels, targets)
        for weight, gradient, (first, second) in zip(self.weights, gradients, self.moments, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            weight -= rate * first / (1 - 0.9**self.steps) / (np.sqrt(second / (1 - 0.999**self.steps)) + 1e-8)

    def losses(self, inputs: Array, labels: Array, targets: Targets) -> tuple[float, float, float]:
        """L_CE, L_KD and L_disc, averaged over samples, and over features (L_KD) or classes (L_disc)."""
        features, own = self.features(inputs), one_hot(labels)
        probabilities = softmax(self.head(features))  # (n, C)
        cross_entropy = -np.log((probabilities * own).sum(axis=1)).mean()
        distillation = ((features - targets.means[labels]) ** 2).mean()
        same = probabilities @ softmax(self.head(targets.observations)).T  # ĥ (n, C): do both show the same class?
        return float(cross_entropy), float(distillation), float(-np.log(np.where(own == 1, same, 1 - same)).mean())

    def gradients(self, inputs: Array, labels: Array, targets: Targets) -> list[Array]:
        """The gradients of L by A, a, V and v: what PyTorch would find from `losses`."""
        features, own, size = self.features(inputs), one_hot(labels), len(labels)
        probabilities, observed = softmax(self.head(features)), softmax(self.head(targets.observations))
        same = probabilities @ observed.T
        by_same = self.disc * np.where(own == 1, -1 / same, 1 / (1 - same)) / same.size  # (n, C)
        by_logits = (probabilities - own) / size + through_softmax(probabilities, by_same @ observed)  # (n, C)
        by_observed = through_softmax(observed, by_same.T @ probabilities)  # (C, C): the head sees observations, too
        by_features = by_logits @ self.weights[2].T
        by_features += self.kd * 2 * (features - targets.means[labels]) / features.size
        hidden = by_features * (1 - features**2)
        by_head = features.T @ by_logits + targets.observations.T @ by_observed
        return [inputs.T @ hidden, hidden.sum(axis=0), by_head, by_logits.sum(axis=0) + by_observed.sum(axis=0)]


def play_rs(parties: list[tuple[Array, Array]], rounds: int, **weights: float) -> list[Network]:
    """Let parties learn together. In round 1 the teacher is zero: nobody has shared anything."""
    rng, nothing = np.random.default_rng(0), np.zeros((CLASSES, 32))
    networks = [Network(parties[0][0].shape[1], 32, seed, **weights) for seed in range(len(parties))]
    means, observations = nothing, [nothing for _ in parties]
    for _ in range(rounds):
        taught, releases = list(observations), []  # those of the last round
        for mine, ((inputs, labels), network) in enumerate(zip(parties, networks, strict=True)):
            other = rng.choice([each for each in range(len(parties)) if each != mine])  # collect
            for batch in np.array_split(rng.permutation(len(labels)), len(labels) // 20):  # train
                network.step(inputs[batch], labels[batch], Targets(means, taught[other]))
            features = network.features(inputs)  # release
            releases.append(Release(one_hot(labels).T @ features, one_hot(labels).sum(axis=0)))
            chosen = [rng.permutation(np.flatnonzero(labels == label))[:OBSERVED] for label in range(CLASSES)]
            observations[mine] = np.stack([features[rows].mean(axis=0) for rows in chosen])
        sums, counts = add_up(releases)  # publish
        means = sums / counts[:, None]
    return networks


# CS, sharing in a common space. All parties compute the same fixed features ψ. A party owns a weight α for each of its
# samples and class, and shares Σ α ψ. The total is everybody's classifier:
#     W = Σ α (ψ − μ) / (λ n τ),   scores = W (ψ − μ) + the shares of the classes,
# with μ the mean of all ψ, and τ = d − |μ|² their mean squared distance from it. One linear solve a round makes the α
# of a party's own samples those that they would have, if all parties stepped alike.
def cosines(inputs: Array, dimension: int = 512, width: float = 4.0, seed: int = 0) -> Array:
    """ψ: random cosines, a Gaussian kernel. The seed is what parties agree on; each vector is √d long."""
    rng = np.random.default_rng(seed)
    frequencies = rng.standard_normal((inputs.shape[1], dimension)) / width
    vectors = np.cos(inputs @ frequencies + rng.uniform(0, 2 * np.pi, dimension))
    return vectors * np.sqrt(dimension) / np.linalg.norm(vectors, axis=1, keepdims=True)


def release(vectors: Array, labels: Array, alpha: Array) -> Release:
    """A party's part of the classifier: a row for each class, and one for the centre. Last in a row: Σ α, or n."""
    ones = np.ones((len(labels), 1))
    rows = np.hstack([alpha, ones]).T @ np.hstack([vectors, ones])  # (C + 1, d + 1)
    return Release(rows, one_hot(labels).sum(axis=0))


class Classifier(NamedTuple):
    """A linear classifier in the space, as read from a total."""

    weights: Array  # (C, d)
    centre: Array  # (d,)
    shares: Array  # (C,)
    scale: float  # λ n τ
    samples: float  # n

    def __call__(self, vectors: Array) -> Array:
        """Scores: (n, C)"""
        return (vectors - self.centre) @ self.weights.T + self.shares


def read(total: Release) -> Classifier:
    """Make the classifier that a total stands for."""
    samples = total.counts.sum()
    centre = total.sums[CLASSES, :-1] / samples
    scale = SHRINKAGE * samples * (len(centre) - centre @ centre)
    weights = (total.sums[:CLASSES, :-1] - total.sums[:CLASSES, -1:] * centre) / scale
    return Classifier(weights, centre, total.counts / samples, scale, samples)


def improve(vectors: Array, labels: Array, alpha: Array, common: Classifier) -> Array:
    """One party's step (CoCoA, squared loss): (n, C). Its own samples stand for everybody's, n / own times over."""
    centred = vectors - common.centre
    gram = centred @ centred.T * (common.samples / len(labels) / common.scale)
    residual = one_hot(labels) - common(vectors) - alpha
    return alpha + np.linalg.solve(np.eye(len(labels)) + gram, residual)


def play_cs(parties: list[tuple[Array, Array]], rounds: int) -> Classifier:
    """Let parties, given by their vectors and labels, find the classifier of all their samples."""
    alphas = [np.zeros((len(labels), CLASSES)) for _, labels in parties]
    for _ in range(rounds + 1):
        common = read(add_up([release(*party, alpha) for party, alpha in zip(parties, alphas, strict=True)]))
        alphas = [improve(*party, alpha, common) for party, alpha in zip(parties, alphas, strict=True)]
    return common


def main() -> None:
    """Show what each method gives the first party, beside learning alone."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    images, labels = (images[order] - 8) / 8, labels[order]
    parties = [(images[start : start + 100], labels[start : start + 100]) for start in range(0, 400, 100)]
    test, truth = images[400:], labels[400:]
    spaces = [(cosines(inputs), own) for inputs, own in parties]
    for title, weights in (("network alone", {"kd": 0.0, "disc": 0.0}), ("RS, 100 rounds", {})):
        network = play_rs(parties, 100, **weights)[0]
        print(f"{title:>14}: {np.mean(network.head(network.features(test)).argmax(1) == truth):.1%}")
    for title, members, rounds in (("space alone", 1, 1), ("CS, 1 round", 4, 1), ("CS, 10 rounds", 4, 10)):
        common = play_cs(spaces[:members], rounds)
        print(f"{title:>14}: {np.mean(common(cosines(test)).argmax(1) == truth):.1%}")


if __name__ == "__main__":
    main()
