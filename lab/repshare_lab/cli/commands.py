"""The commands of the laboratory: their lines in the list of commands, and their options in the order of the help."""

from repshare.cli.groups import BUDGET, COMMON
from repshare.cli.main import Command, CommandGroup, Commands

HOME = "repshare_lab.cli"
LAYOUTS = {
    "compare": {
        COMMON: "dataset clients rounds methods method-options model partition alpha seeds name resume json",
        "data": "samples classes-per-client label test-file standardise fallback",
        "training": "epochs batch-size optimizer learning-rate compute eval-every dimension device",
        "sharing": "n-avg m-up m-down lambda-kd lambda-disc lambda-length",
        "space (methods CS and CA)": "space loss shrinkage space-rounds",
        "privacy": BUDGET,
        "absence and noise": "participation dropout noise-partners",
        "output and processes": "keep-models keep-vectors workers checkpoint-every",
    },
    "privacy audit": {
        COMMON: "epsilons releases trials delta broken output json",
        "releases without noise": "samples dataset members space",
    },
}
COMMANDS: Commands = {
    "demo": Command("Watch clients with different networks learn together.", f"{HOME}.demo.command:demo"),
    "compare": Command(
        "Compare methods on the same data: a table, a figure, all records.",
        f"{HOME}.learning:compare",
        LAYOUTS["compare"],
    ),
    "methods": Command("List the methods, with the publication of each.", f"{HOME}.methods:methods"),
    "report": Command("Write one HTML file about recorded runs.", f"{HOME}.report:report"),
    "reproduce": Command(
        "Reproduce the paper's tables and figures, and further studies.", f"{HOME}.reproduce:reproduce"
    ),
    "data": Command("List the datasets, or download them.", f"{HOME}.data:data"),
    "privacy": CommandGroup(
        "Account for and audit privacy (ledger, audit).",
        {
            "audit": Command(
                "Attack releases, to measure what they reveal.", f"{HOME}.audit:audit", LAYOUTS["privacy audit"]
            ),
        },
    ),
}
