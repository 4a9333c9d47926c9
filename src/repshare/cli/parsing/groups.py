"""Under which titles a command's help shows its options, and in which order: the common ones first."""

from collections.abc import Iterable

from repshare.cli.parsing.options import Option

COMMON = "common options"
Layout = tuple[tuple[str, str], ...]  # a title, and the names of its options

STORE: Layout = (("where the relay keeps its data", "db redis audit-log"),)
SHARED: Layout = (
    ("training", "epochs batch-size optimizer learning-rate compute eval-every dimension head independent-starts "
     "seed device threads pace"),
    ("sharing", "n-avg m-up m-down minimum-count peers share-classes share-samples share-inputs releases "
     "release-every precision weighted aggregation norm-bound lambda-kd lambda-disc lambda-length start discriminator "
     "summed code-size report"),
    ("common space (methods CS and CA)", "agreement space loss shrinkage common-rounds common-precision held-out "
     "keep-to-self common-only"),
    ("privacy", "epsilon delta planned-releases clip adjacency end-to-end training-share grad-clip noise-shares "
     "seeded-noise"),
)  # fmt: skip
SIMULATED: Layout = (
    (COMMON, "dataset clients rounds methods method-options model partition alpha seeds name resume json"),
    (
        "data",
        "samples public-data label test-file standardise classes-per-client ratio samples-per-client data-folder "
        "fallback",
    ),
    *SHARED,
    ("faults and attacks", "participation dropout late-joiners leavers stragglers attackers attack"),
    ("topology (no server)", "topology degree link-chance"),
    (
        "output and processes",
        "keep-models runs workers inline ray resident checkpoint-every",
    ),
)
LAYOUTS: dict[str, Layout] = {
    "compare": SIMULATED,
    "run": SIMULATED,
    "join": (
        (COMMON, "party token-file rounds state dry-run compare alone restart json"),
        ("connection", "ca cert key plain-http timeout patience"),
        ("a relay without tokens", "name task"),
        ("secure sums", "group signing-key threshold step-patience"),
        *SHARED,
    ),
    "peer": (
        (COMMON, "party name key trust listen connect rounds state dry-run compare restart json"),
        ("finding and trusting peers", "task multicast first-use timeout memory linger"),
        ("TLS", "ca cert cert-key mutual"),
        *SHARED,
    ),
    "privacy plan": (
        (COMMON, "epsilon method clients releases json"),
        ("the budget's meaning", "delta adjacency"),
        ("RS (averages of features)", "class-sizes dimension n-avg m-up clip figure"),
        ("CS (a common space): the data to try it on", "dataset data-folder samples draws"),
        ("CS: space and noise", "space noise-shares"),
    ),
    "relay serve": (
        (COMMON, "host port db certificate key insecure task classes dimension"),
        ("access", "client-ca behind-proxy public-page public-metrics"),
        ("the task's other values", "norm-bound minimum-count weighted aggregation max-age named-peers"),
        ("limits", "rate max-bytes connections body-seconds head-seconds read-seconds"),
        ("storage and logs", "redis audit-log log-level away-seconds"),
    ),
}


def grouped(command: str, options: Iterable[Option]) -> dict[str, list[Option]]:
    """Return the options by title. Those that have none come first, under `options`."""
    left = {option.name: option for option in options if not option.positional}
    groups = {
        title: [left.pop(name) for name in names.split() if name in left]
        for title, names in LAYOUTS.get(command, STORE)
    }
    return {title: held for title, held in {"options": [*left.values()], **groups}.items() if held}
