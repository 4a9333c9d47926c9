"""Studies that the paper does not show: its setting with one thing changed, ten clients unless said otherwise."""

from repshare_lab.experiments.study import METHODS, Panel, Study, Variant

SPACE = ("CA", "CS")  # sharing in a common space, and that space alone as its control
CONTROLLED = (*METHODS, "FC")  # and, as a control, a penalty on long features without sharing
ALL = (*CONTROLLED, *SPACE)
LONGER = {"code_size": 0.0, "space_rounds": 20}  # FC as a penalty on long features; more rounds of CS

SKEWED = {f"α = {alpha:g}": {"partition": "dirichlet", "alpha": alpha} for alpha in (0.1, 0.5, 1.0)}
SKEWS = {label: label.removeprefix("α = ") for label in SKEWED} | {"uniform": "∞\n(uniform)"}
SKEW = Study(
    "skew",
    [Variant(label, {**dealt, **LONGER}, methods=ALL) for label, dealt in {**SKEWED, "uniform": {}}.items()],
    [
        Panel("tested on all classes", "Dirichlet α: the smaller, the more one-sided", SKEWS),
        Panel("tested on the client's own mix of classes", "Dirichlet α", SKEWS, "own"),
    ],
)

PRESENT = {"all there": "all in each round", "half absent": "half absent\nin each round"}
ABSENCE = Study(
    "absence",
    [
        Variant("all there", LONGER, methods=(*METHODS, *SPACE)),
        Variant("half absent", {"dropout": 0.5, **LONGER}, methods=(*METHODS, *SPACE)),
    ],
    [Panel("clients that come and go", "", PRESENT)],
    ordered=False,
)

BITS = {"fp32": "fp32", "fp16": "fp16", "int8": "int8"}
PRECISION = Study(
    "precision",
    [
        Variant("fp32", policy={"precision": "fp32"}, methods=(*METHODS, *SPACE)),
        Variant("fp16", policy={"precision": "fp16"}, methods=("RS", "CS")),
        Variant("int8", policy={"precision": "int8"}, methods=("RS",)),
    ],
    [Panel("representations written with fewer bits", "numbers of a release", BITS)],
)

FEW = {"clients": 2, "samples": 1200, "rounds": 6, "eval_every": 6, "model": ("resnet9",)}
COMPUTE = Study(
    "compute",
    [Variant(kind, FEW, {"compute": kind}, methods=("FL",)) for kind in ("fp32", "bf16")],
    [
        Panel(
            "a ResNet9 that computes with fewer bits", "numbers of training and test", {"fp32": "fp32", "bf16": "bf16"}
        )
    ],
    ordered=False,
)

HELD = {f"{held} of 10 classes": {"partition": "shards", "classes_per_client": held, **LONGER} for held in (5, 8)}
CLASSES = {label: label.partition(" ")[0] for label in HELD}
UNSEEN = Study(
    "unseen",
    [Variant(label, dealt, methods=ALL) for label, dealt in HELD.items()],
    [
        Panel("tested on classes the client has", "classes that a client has, of 10", CLASSES, "own"),
        Panel("tested on classes it has no sample of", "classes that a client has", CLASSES, "unseen"),
    ],
)

# A discriminator of its own: records only, c528c6c is the last commit that has it.
EXTERNAL = [f"external, λ_disc = {weight:g}" for weight in (0.1, 1.0, 10.0)]
SHOWN = {"none": "none", "classifier": "classifier\nλ_disc = 1"} | {
    label: label.replace(", ", "\n") for label in EXTERNAL
}
DISCRIMINATOR = Study(
    "discriminator",
    [
        Variant("classifier"),
        Variant("none", policy={"lambda_disc": 0.0}, methods=("RS",)),
        *(Variant(label, methods=()) for label in EXTERNAL),
    ],
    [Panel("what tells classes apart", "discriminator", SHOWN)],
    ordered=False,
)

COUNTS = {"n_avg = 1": "1", "n_avg = 3": "3", "n_avg = 10": "10", "n_avg = 1000": "all"}
PAIRS = {f"n_avg = 3, M↑ = {up}, M↓ = {down}": (up, down) for up, down in ((1, 9), (9, 1), (9, 9))}
AVERAGES = Study(
    "averages",
    [
        Variant("n_avg = 10"),
        *(Variant(f"n_avg = {count}", policy={"n_avg": count}, methods=("RS",)) for count in (1, 3, 1000)),
        *(
            Variant(label, policy={"n_avg": 3, "m_up": up, "m_down": down}, methods=("RS",))
            for label, (up, down) in PAIRS.items()
        ),
    ],
    [
        Panel("one observation a class (M↑ = M↓ = 1)", "n_avg, of about 12 samples a class", COUNTS),
        Panel(
            "n_avg = 3",
            "M↑, M↓",
            {"n_avg = 3": "1, 1"} | {label: f"{up}, {down}" for label, (up, down) in PAIRS.items()},
        ),
    ],
    ordered=False,
)

CODES = (0.0, 0.1, 0.3, 0.9)  # other methods do not depend on codes: they are run with the last
CROWDS = {clients: {f"N = {clients}, codes ±{size:g}": size for size in CODES} for clients in (10, 5)}
CONTROL = Study(
    "codes",
    [
        Variant(label, {"clients": clients, "code_size": size}, methods=CONTROLLED if size == CODES[-1] else ("FC",))
        for clients, codes in CROWDS.items()
        for label, size in codes.items()
    ],
    [
        Panel(
            f"{clients} clients, codes that no client shared",
            "how far a code is from zero",
            {label: f"±{size:g}" for label, size in codes.items()},
        )
        for clients, codes in CROWDS.items()
    ],
)

PENALTIES = {f"λ_length = {weight:g}": weight for weight in (0.0, 1.0, 10.0, 100.0)}
TICKS = {label: f"{weight:g}" for label, weight in PENALTIES.items()}
LENGTH = Study(
    "length",
    [
        Variant(label, policy={"lambda_length": weight}, methods=("CL", "IL", "FL", "FD", "RS"))
        for label, weight in PENALTIES.items()
    ],
    [Panel("features kept short by a penalty", "λ_length", TICKS)],
)

KINDS = ("lenet5", "convnet", "mlp")
NINE = {"clients": 9, "samples": 1080}
NETWORKS = {"lenet5": "LeNet5", "convnet": "ConvNet", "mlp": "MLP"}
MODELS = Study(
    "models",
    [
        *(Variant(kind, {**NINE, "model": (kind,)}, methods=(*METHODS, "CA")) for kind in KINDS),
        Variant("together", {**NINE, "model": KINDS, "dimension": 84}, methods=("RS", "CS")),
    ],
    [Panel("nine clients of one kind, and three of each kind together", "network", NETWORKS)],
    ordered=False,
    kinds=KINDS,
)

SIZES = (5, 10, 30, 100)
CROWD = (300, 1000)  # training the networks of this many clients would take days
EACH = 120  # samples, which ten clients have in the paper
PER_CLIENT = {f"N = {size}, 120 samples each": size for size in SIZES if size != 10}  # ten of them have 1,200 in all
MANY = "N = 10000, 6 samples each"
BY_SIZE = sorted([*PER_CLIENT.items(), ("N = 10", 10)], key=lambda labelled: labelled[1])
CLIENTS = Study(
    "clients",
    [
        *(Variant(f"N = {size}", {"clients": size, **LONGER}, methods=ALL) for size in SIZES),
        *(Variant(f"N = {size}", {"clients": size, **LONGER}, methods=SPACE) for size in CROWD),
        *(
            Variant(label, {"clients": size, "samples": size * EACH, **LONGER}, methods=ALL)
            for label, size in PER_CLIENT.items()
        ),
        Variant(MANY, {"clients": 10_000, "samples": 60_000, **LONGER}, methods=("CS",), seeds=1),
    ],
    [
        Panel("1,200 samples in all", "clients N", {f"N = {size}": str(size) for size in SIZES + CROWD}),
        Panel(
            "120 samples each", "clients N", {label: str(size) for label, size in BY_SIZE} | {MANY: "10,000\n(6 each)"}
        ),
    ],
)

FILTERS = {f"{count} filters of each size": count for count in (4, 8, 16, 32, 64)}
ROUNDS = {
    size: {f"N = {size}, {rounds} rounds": rounds for rounds in (1, 2, 3, 5, 10, 20)} for size in (10, 100)
}  # by the number of clients
COMMON = Study(
    "space",
    [
        *(
            Variant(label, {"space": ("patches", f"filters={count}")}, methods=SPACE)
            for label, count in FILTERS.items()
        ),
        *(
            Variant(label, {"clients": size, "space_rounds": rounds}, methods=("CS",))
            for size, labels in ROUNDS.items()
            for label, rounds in labels.items()
        ),
    ],
    [
        Panel("dimension, 10 rounds", "d", {label: str(54 * count) for label, count in FILTERS.items()}),
        *(
            Panel(f"{size} clients", "rounds", {label: str(rounds) for label, rounds in labels.items()})
            for size, labels in ROUNDS.items()
        ),
    ],
)

STUDIES = tuple(
    study.experiment()
    for study in (
        SKEW,
        ABSENCE,
        PRECISION,
        UNSEEN,
        DISCRIMINATOR,
        AVERAGES,
        CONTROL,
        LENGTH,
        MODELS,
        CLIENTS,
        COMMON,
        COMPUTE,
    )
)
