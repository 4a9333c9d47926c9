"""What the paper does not show: studies of its setting with one thing changed, ten clients unless said otherwise."""

from repshare.experiments.study import METHODS, Panel, Study, Variant, make_experiment

SPACE = ("CA", "CS")  # sharing in a common space, beside that space alone
CONTROLLED = (*METHODS, "FC")  # beside the others, what a penalty on long features does without sharing
ALL = (*CONTROLLED, *SPACE)
LONGER = {"code_size": 0.0, "common_rounds": 20}  # FC as a penalty on long features; more rounds of CS

SKEWED = {f"α = {alpha:g}": alpha for alpha in (0.1, 0.5, 1.0)}
SKEWS = {label: f"{alpha:g}" for label, alpha in SKEWED.items()} | {"uniform": "∞\n(uniform)"}
SKEW = make_experiment(
    "skew",
    "clients whose classes differ: Dirichlet shares, tested on all classes and on their own",
    Study(
        (
            *(
                Variant(label, {"partition": "dirichlet", "alpha": alpha, **LONGER}, methods=ALL)
                for label, alpha in SKEWED.items()
            ),
            Variant("uniform", LONGER, methods=ALL),
        ),
        (
            Panel("tested on all classes", "Dirichlet α: the smaller, the more one-sided", SKEWS),
            Panel("tested on the client's own mix of classes", "Dirichlet α", SKEWS, "own"),
        ),
    ),
)

PRESENT = {"all there": "all in each round", "half absent": "half absent\nin each round"}
ABSENCE = make_experiment(
    "absence",
    "half of the clients absent in each round",
    Study(
        (
            Variant("all there", LONGER, methods=(*METHODS, *SPACE)),
            Variant("half absent", {"dropout": 0.5, **LONGER}, methods=(*METHODS, *SPACE)),
        ),
        (Panel("clients that come and go", "", PRESENT),),
        ordered=False,
    ),
)

BITS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8"}
PRECISION = make_experiment(
    "precision",
    "how exactly what is shared is written: fp32, fp16, int8",
    Study(
        (
            Variant("fp32", policy={"common_precision": "fp32"}, methods=(*METHODS, *SPACE)),
            Variant("fp16", policy={"precision": "fp16", "common_precision": "fp16"}, methods=("RS", "CS")),
            Variant("int8", policy={"precision": "int8"}, methods=("RS",)),
        ),
        (Panel("representations written with fewer bits", "numbers of a release", BITS),),
    ),
)

HELD = {f"{held} of 10 classes": held for held in (5, 8)}
CLASSES = {label: str(held) for label, held in HELD.items()}
UNSEEN = make_experiment(
    "unseen",
    "clients that lack classes: what they learn about those",
    Study(
        tuple(
            Variant(
                label,
                {"partition": "shards", "classes_per_client": held, **LONGER},
                methods=ALL,
            )
            for label, held in HELD.items()
        ),
        (
            Panel("tested on classes the client has", "classes that a client has, of 10", CLASSES, "own"),
            Panel("tested on classes it has no sample of", "classes that a client has", CLASSES, "unseen"),
        ),
    ),
)

WEIGHTS = {f"external, λ_disc = {weight:g}": weight for weight in (0.1, 1.0, 10.0)}
DISCRIMINATORS = {
    "none": "none",
    "classifier": "classifier\nλ_disc = 1",
    **{label: f"external\nλ_disc = {weight:g}" for label, weight in WEIGHTS.items()},
}
DISCRIMINATOR = make_experiment(
    "discriminator",
    "the classifier as discriminator, beside an external one and none",
    Study(
        (
            Variant("classifier"),
            Variant("none", policy={"lambda_disc": 0.0}, methods=("RS",)),
            *(
                Variant(label, policy={"discriminator": "external", "lambda_disc": weight}, methods=("RS",))
                for label, weight in WEIGHTS.items()
            ),
        ),
        (Panel("what tells classes apart", "discriminator", DISCRIMINATORS),),
        ordered=False,
    ),
)

COUNTS = {1: "1", 3: "3", 1000: "all"}
PAIRS = ((1, 9), (9, 1), (9, 9))
AVERAGES = make_experiment(
    "averages",
    "samples in an observation (n_avg), observations sent and received (M↑, M↓)",
    Study(
        (
            Variant("n_avg = 10"),
            *(Variant(f"n_avg = {count}", policy={"n_avg": count}, methods=("RS",)) for count in COUNTS),
            *(
                Variant(
                    f"n_avg = 3, M↑ = {up}, M↓ = {down}",
                    policy={"n_avg": 3, "m_up": up, "m_down": down},
                    methods=("RS",),
                )
                for up, down in PAIRS
            ),
        ),
        (
            Panel(
                "one observation a class (M↑ = M↓ = 1)",
                "n_avg, of about 12 samples a class",
                {"n_avg = 1": "1", "n_avg = 3": "3", "n_avg = 10": "10", "n_avg = 1000": "all"},
            ),
            Panel(
                "n_avg = 3",
                "M↑, M↓",
                {"n_avg = 3": "1, 1", **{f"n_avg = 3, M↑ = {up}, M↓ = {down}": f"{up}, {down}" for up, down in PAIRS}},
            ),
        ),
        ordered=False,
    ),
)

CODES = (0.0, 0.1, 0.3, 0.9)  # the last is where the others stand: they do not depend on codes
CROWDS = (10, 5)
CONTROL = make_experiment(
    "codes",
    "class codes drawn from a seed in place of what others share (FC), closer to zero and farther",
    Study(
        tuple(
            Variant(
                f"N = {clients}, codes ±{size:g}",
                {"clients": clients, "code_size": size},
                methods=CONTROLLED if size == CODES[-1] else ("FC",),
            )
            for clients in CROWDS
            for size in CODES
        ),
        tuple(
            Panel(
                f"{clients} clients, codes that nobody shared",
                "how far a code is from zero",
                {f"N = {clients}, codes ±{size:g}": f"±{size:g}" for size in CODES},
            )
            for clients in CROWDS
        ),
    ),
)

PENALTIES = {f"λ_length = {weight:g}": weight for weight in (0.0, 1.0, 10.0, 100.0)}
LENGTH = make_experiment(
    "length",
    "features kept short by a penalty, with every method",
    Study(
        tuple(
            Variant(label, policy={"lambda_length": weight}, methods=("CL", "IL", "FL", "FD", "RS"))
            for label, weight in PENALTIES.items()
        ),
        (
            Panel(
                "features kept short by a penalty",
                "λ_length",
                {label: f"{weight:g}" for label, weight in PENALTIES.items()},
            ),
        ),
    ),
)

KINDS = ("lenet5", "convnet", "mlp")
MODELS = make_experiment(
    "models",
    "three kinds of network together, beside each kind alone (9 clients)",
    Study(
        (
            *(
                Variant(
                    kind, {"clients": 9, "samples": 1080, "model": (kind,)}, methods=(*METHODS, "CA"),
                )
                for kind in KINDS
            ),
            Variant(
                "together", {"clients": 9, "samples": 1080, "model": KINDS, "dimension": 84}, methods=("RS", "CS"),
            ),
        ),
        (
            Panel(
                "nine clients of one kind, and three of each kind together",
                "network",
                {"lenet5": "LeNet5", "convnet": "ConvNet", "mlp": "MLP"},
            ),
        ),
        ordered=False,
        kinds=KINDS,
    ),
)  # fmt: skip

SIZES = (5, 10, 30, 100)
CROWD = (300, 1000)  # networks of so many clients would take days
EACH = 120  # samples, which ten clients have in the paper
IN_ALL = {f"N = {size}": size for size in SIZES}
MORE = {f"N = {size}": size for size in CROWD}
PER_CLIENT = {f"N = {size}, 120 samples each": size for size in SIZES if size != 10}  # ten of them have 1,200 in all
MANY = "N = 10000, 6 samples each"
CLIENTS = make_experiment(
    "clients",
    "5 to 10,000 clients, with as many samples in all, and with as many each",
    Study(
        (
            *(Variant(label, {"clients": size, **LONGER}, methods=ALL) for label, size in IN_ALL.items()),
            *(Variant(label, {"clients": size, **LONGER}, methods=SPACE) for label, size in MORE.items()),
            *(
                Variant(
                    label,
                    {"clients": size, "samples": size * EACH, **LONGER},
                    methods=ALL,
                )
                for label, size in PER_CLIENT.items()
            ),
            Variant(MANY, {"clients": 10_000, "samples": 60_000, **LONGER}, methods=("CS",), seeds=1),
        ),
        (
            Panel("1,200 samples in all", "clients N", {label: str(size) for label, size in (IN_ALL | MORE).items()}),
            Panel(
                "120 samples each",
                "clients N",
                {label: str(size) for label, size in sorted([*PER_CLIENT.items(), ("N = 10", 10)], key=lambda x: x[1])}
                | {MANY: "10,000\n(6 each)"},
            ),
        ),
    ),
)

FILTERS = {f"{count} filters of each size": count for count in (4, 8, 16, 32, 64)}
ROUNDS = (1, 2, 3, 5, 10, 20)
COMMON = make_experiment(
    "space",
    "the common space: accuracy against its dimension, and against rounds",
    Study(
        (
            *(
                Variant(label, {"space": ("patches", f"filters={count}")}, methods=SPACE)
                for label, count in FILTERS.items()
            ),
            *(
                Variant(f"N = {size}, {rounds} rounds", {"clients": size, "common_rounds": rounds}, methods=("CS",))
                for size in (10, 100)
                for rounds in ROUNDS
            ),
        ),
        (
            Panel("dimension, 10 rounds", "d", {label: str(54 * count) for label, count in FILTERS.items()}),
            *(
                Panel(f"{size} clients", "rounds", {f"N = {size}, {rounds} rounds": str(rounds) for rounds in ROUNDS})
                for size in (10, 100)
            ),
        ),
    ),
)

STUDIES = (SKEW, ABSENCE, PRECISION, UNSEEN, DISCRIMINATOR, AVERAGES, CONTROL, LENGTH, MODELS, CLIENTS, COMMON)
