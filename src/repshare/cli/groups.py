"""The options of the larger commands, under the titles of their help, the common ones first.

What is not listed here is no option: it is set in Python.
"""

from collections.abc import Collection
from dataclasses import fields

COMMON = "common options"
Layout = dict[str, str]  # names of options by title

SHARED = "minimum-count share-classes share-inputs releases"
BUDGET = "epsilon delta adjacency"
LAYOUTS: dict[str, Layout] = {
    "join": {
        COMMON: "party token-file rounds state dry-run approve compare restart",
        "connection": "ca cert key patience plain-http report",
        "a relay without tokens": "name task",
        "space": "agreement accept-space prefer-own own-mix keep-vectors",
        "what is shared": f"{SHARED} accept-exposure",
        "representations": "n-avg m-up",
        "privacy": f"{BUDGET} noise-shares",
        "masked groups": "step-patience",
        "work": "seed pace device threads",
    },
    "peer": {
        COMMON: "party name key trust listen connect rounds state dry-run approve compare restart",
        "finding and trusting peers": "task multicast first-use timeout",
        "TLS": "ca cert cert-key mutual",
        "space": "agreement prefer-own own-mix keep-vectors",
        "what is shared": f"{SHARED} accept-exposure",
        "representations": "n-avg m-up m-down",
        "privacy": BUDGET,
        "work": "seed pace device threads",
    },
    "part": {
        COMMON: "party agreement output name state approve",
        "what is shared": "minimum-count accept-exposure",
        "privacy": "epsilon adjacency",
    },
    "receive": {COMMON: "party agreement name state"},
    "relay serve": {
        COMMON: "host port db certificate key insecure task classes dimension minimum-count max-age",
        "access": "client-ca behind-proxy public-page public-metrics",
        "limits": "rate max-bytes connections body-seconds head-seconds read-seconds away-seconds",
        "logs": "audit-log log-level",
    },
}


def explain_hidden(flag: str, hidden: Collection[str]) -> str:
    """Advice for a field of a command's dataclasses that is set in Python only; nothing for any other name."""
    from repshare import moved
    from repshare.config import Policy

    field = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    if "_" in flag:
        return ""
    if field in moved.OPTIONS:
        return f"{flag} is no option here: it is called --{moved.OPTIONS[field].replace('_', '-')} now"
    if field in {each.name for each in fields(Policy)}:
        return f"{flag} is no option here: set {field} in Python, in Policy(…), for repshare_lab.compare or your Party"
    return f"{flag} is no option here: set {field} in Python" if field in hidden else ""
