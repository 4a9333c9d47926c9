"""The options of the larger commands, under the titles of their help, the common ones first.

What is not listed here is no option: it is set in Python.
"""

from collections.abc import Collection
from dataclasses import fields

COMMON = "common options"
Layout = dict[str, str]  # names of options by title

SHARED = "minimum-count share-classes share-inputs releases release-every"
BUDGET = "epsilon delta planned-releases adjacency"
LAYOUTS: dict[str, Layout] = {
    "join": {
        COMMON: "party token-file rounds state check-data dry-run compare alone restart json",
        "connection": "ca cert key patience plain-http report",
        "a relay without tokens": "name task",
        "space": "agreement accept-space prefer-own own-mix keep-vectors",
        "what is shared": f"{SHARED} accept-exposure",
        "representations": "n-avg m-up",
        "privacy": f"{BUDGET} noise-shares",
        "secure sums": "group signing-key threshold step-patience",
        "work": "seed eval-every pace device threads",
    },
    "peer": {
        COMMON: "party name key trust listen connect rounds state check-data dry-run compare restart json",
        "finding and trusting peers": "task multicast first-use timeout",
        "TLS": "ca cert cert-key mutual",
        "space": "agreement prefer-own own-mix keep-vectors",
        "what is shared": f"{SHARED} accept-exposure",
        "representations": "n-avg m-up m-down aggregation",
        "privacy": BUDGET,
        "work": "seed eval-every pace device threads",
    },
    "relay serve": {
        COMMON: "host port db certificate key insecure task classes dimension minimum-count max-age",
        "access": "client-ca behind-proxy public-page public-metrics",
        "limits": "rate max-bytes connections body-seconds head-seconds read-seconds away-seconds",
        "logs": "audit-log log-level",
    },
}
REMOVED = {
    "ray": "d934b08 is the last commit that simulates on a Ray cluster",
    "topology": "d934b08 is the last commit that simulates clients without a server",
    "inline": "--workers 0 does it",
    "runs": "runs are saved in runs/: change the folder first",
    "data-folder": "repshare data fetch NAME --folder FOLDER once, then it is in the cache",
    "redis": "give its address to --db, as in --db redis://host:port/0",
    "audit-log": "set the environment variable REPSHARE_AUDIT_LOG",
    "plain-http": "use TLS, or repshare relay on the relay's machine",
    "keep": "the demo leaves no files; repshare join keeps its state, compare --keep-models its models",
    "json": "read what is printed, and the exit code",
    "timeout": "--patience says for how long a client tries again",
    "memory": "befa941 is the last commit whose peers remember others' class means",
    "linger": "start the peer again, and it answers the others",
    "resident": "set it in Python, in repshare_lab.simulation.pools.choose_workers",
    "url": "write the address into the printed line yourself",
    "cert": "do it on the relay's machine, or at a relay that asks for no certificate",
    "key": "do it on the relay's machine, or at a relay that asks for no certificate",
    "space-seed": "the seed is 0; your own space, as file.py:function, may have another",
    "draws": "samples and noise are drawn three times",
    "what": "what is in the folder is written",
    "share-samples": "give Party the samples that may be shared, or set Policy(share_samples=…)",
    "min-count": "use --minimum-count",
    "degree": "befa941 is the last commit with graphs of other degrees than a ring and all",
    "help-all": "--help describes all options",
}


def explain_removed(flag: str, hidden: Collection[str] = ()) -> str:
    """Advice for an option that earlier versions had; nothing for one that never was.

    Those that are hidden are fields of a command's dataclasses that are set in Python only.
    """
    from repshare import moved
    from repshare.config import Policy

    name = flag.removeprefix("--").removeprefix("no-")
    if name in REMOVED:
        return f"{flag} is no option here: {REMOVED[name]}"
    field = name.replace("-", "_")
    if "_" in name:
        return ""
    if field in moved.OPTIONS:
        return f"{flag} is no option here: it is called --{moved.OPTIONS[field].replace('_', '-')} now"
    if field in {each.name for each in fields(Policy)}:
        return f"{flag} is no option here: set {field} in Python, in Policy(…), for repshare_lab.compare or your Party"
    return f"{flag} is no option here: set {field} in Python" if field in hidden else ""
