"""Studies that the paper does not show: its setting with one thing changed, ten clients unless said otherwise."""

from repshare_lab.experiments.study import METHODS, Panel, Study, Variant

SPACE = ("CA", "CS")  # sharing in a common space, and that space alone as its control
CONTROLLED = (*METHODS, "FC")  # and, as a control, a penalty on long features without sharing
ALL = (*CONTROLLED, *SPACE)
LONGER = {"code_size": 0.0, "space_rounds": 20}  # FC as a penalty on long features; more rounds of CS
EXTERNAL = [f"external, λ_disc = {weight:g}" for weight in (0.1, 1.0, 10.0)]
KINDS = ("lenet5", "convnet", "mlp")


def skew() -> Study:
    """Clients whose classes differ, more and less."""
    skewed = {f"α = {alpha:g}": {"partition": "dirichlet", "alpha": alpha} for alpha in (0.1, 0.5, 1.0)}
    skews = {label: label.removeprefix("α = ") for label in skewed} | {"uniform": "∞\n(uniform)"}
    return Study(
        "skew",
        [Variant(label, {**dealt, **LONGER}, methods=ALL) for label, dealt in {**skewed, "uniform": {}}.items()],
        [
            Panel("tested on all classes", "Dirichlet α: the smaller, the more one-sided", skews),
            Panel("tested on the client's own mix of classes", "Dirichlet α", skews, "own"),
        ],
    )


def absence() -> Study:
    """Half of the clients absent in each round."""
    present = {"all there": "all in each round", "half absent": "half absent\nin each round"}
    return Study(
        "absence",
        [
            Variant("all there", LONGER, methods=(*METHODS, *SPACE)),
            Variant("half absent", {"dropout": 0.5, **LONGER}, methods=(*METHODS, *SPACE)),
        ],
        [Panel("clients that come and go", "", present)],
        ordered=False,
    )


def precision() -> Study:
    """Fewer bits on the wire."""
    bits = {"fp32": "fp32", "fp16": "fp16", "int8": "int8"}
    return Study(
        "precision",
        [
            Variant("fp32", policy={"precision": "fp32"}, methods=(*METHODS, *SPACE)),
            Variant("fp16", policy={"precision": "fp16"}, methods=("RS", "CS")),
            Variant("int8", policy={"precision": "int8"}, methods=("RS",)),
        ],
        [Panel("representations written with fewer bits", "numbers of a release", bits)],
    )


def compute() -> Study:
    """A ResNet9 that computes with fewer bits."""
    few = {"clients": 2, "samples": 1200, "rounds": 6, "eval_every": 6, "model": ("resnet9",)}
    return Study(
        "compute",
        [Variant(kind, few, {"compute": kind}, methods=("FL",)) for kind in ("fp32", "bf16")],
        [
            Panel(
                "a ResNet9 that computes with fewer bits",
                "numbers of training and test",
                {"fp32": "fp32", "bf16": "bf16"},
            )
        ],
        ordered=False,
    )


def unseen() -> Study:
    """Classes that a client lacks."""
    held = {f"{held} of 10 classes": {"partition": "shards", "classes_per_client": held, **LONGER} for held in (5, 8)}
    classes = {label: label.partition(" ")[0] for label in held}
    return Study(
        "unseen",
        [Variant(label, dealt, methods=ALL) for label, dealt in held.items()],
        [
            Panel("tested on classes the client has", "classes that a client has, of 10", classes, "own"),
            Panel("tested on classes it has no sample of", "classes that a client has", classes, "unseen"),
        ],
    )


def discriminator() -> Study:
    """What tells classes apart; a discriminator of its own has records only, c528c6c is the last commit that has it."""
    shown = {"none": "none", "classifier": "classifier\nλ_disc = 1"} | {
        label: label.replace(", ", "\n") for label in EXTERNAL
    }
    return Study(
        "discriminator",
        [
            Variant("classifier"),
            Variant("none", policy={"lambda_disc": 0.0}, methods=("RS",)),
            *(Variant(label, methods=()) for label in EXTERNAL),
        ],
        [Panel("what tells classes apart", "discriminator", shown)],
        ordered=False,
    )


def averages() -> Study:
    """n_avg, M↑ and M↓."""
    counts = {"n_avg = 1": "1", "n_avg = 3": "3", "n_avg = 10": "10", "n_avg = 1000": "all"}
    pairs = {f"n_avg = 3, M↑ = {up}, M↓ = {down}": (up, down) for up, down in ((1, 9), (9, 1), (9, 9))}
    return Study(
        "averages",
        [
            Variant("n_avg = 10"),
            *(Variant(f"n_avg = {count}", policy={"n_avg": count}, methods=("RS",)) for count in (1, 3, 1000)),
            *(
                Variant(label, policy={"n_avg": 3, "m_up": up, "m_down": down}, methods=("RS",))
                for label, (up, down) in pairs.items()
            ),
        ],
        [
            Panel("one observation a class (M↑ = M↓ = 1)", "n_avg, of about 12 samples a class", counts),
            Panel(
                "n_avg = 3",
                "M↑, M↓",
                {"n_avg = 3": "1, 1"} | {label: f"{up}, {down}" for label, (up, down) in pairs.items()},
            ),
        ],
        ordered=False,
    )


def codes() -> Study:
    """Targets that no client shared."""
    sizes = (0.0, 0.1, 0.3, 0.9)  # other methods do not depend on codes: they are run with the last
    crowds = {clients: {f"N = {clients}, codes ±{size:g}": size for size in sizes} for clients in (10, 5)}
    return Study(
        "codes",
        [
            Variant(label, {"clients": clients, "code_size": size}, methods=CONTROLLED if size == 0.9 else ("FC",))
            for clients, codes in crowds.items()
            for label, size in codes.items()
        ],
        [
            Panel(
                f"{clients} clients, codes that no client shared",
                "how far a code is from zero",
                {label: f"±{size:g}" for label, size in codes.items()},
            )
            for clients, codes in crowds.items()
        ],
    )


def length() -> Study:
    """Features kept short by a penalty."""
    penalties = {f"λ_length = {weight:g}": weight for weight in (0.0, 1.0, 10.0, 100.0)}
    ticks = {label: f"{weight:g}" for label, weight in penalties.items()}
    return Study(
        "length",
        [
            Variant(label, policy={"lambda_length": weight}, methods=("CL", "IL", "FL", "FD", "RS"))
            for label, weight in penalties.items()
        ],
        [Panel("features kept short by a penalty", "λ_length", ticks)],
    )


def models() -> Study:
    """Three kinds of network together; each alone beside it."""
    nine = {"clients": 9, "samples": 1080}
    networks = {"lenet5": "LeNet5", "convnet": "ConvNet", "mlp": "MLP"}
    return Study(
        "models",
        [
            *(Variant(kind, {**nine, "model": (kind,)}, methods=(*METHODS, "CA")) for kind in KINDS),
            Variant("together", {**nine, "model": KINDS, "dimension": 84}, methods=("RS", "CS")),
        ],
        [Panel("nine clients of one kind, and three of each kind together", "network", networks)],
        ordered=False,
        kinds=KINDS,
    )


def clients() -> Study:
    """Up to 10,000 clients."""
    sizes = (5, 10, 30, 100)
    crowd = (300, 1000)  # training the networks of this many clients would take days
    each = 120  # samples, which ten clients have in the paper
    per_client = {f"N = {size}, 120 samples each": size for size in sizes if size != 10}  # ten have 1,200 in all
    many = "N = 10000, 6 samples each"
    by_size = sorted([*per_client.items(), ("N = 10", 10)], key=lambda labelled: labelled[1])
    return Study(
        "clients",
        [
            *(Variant(f"N = {size}", {"clients": size, **LONGER}, methods=ALL) for size in sizes),
            *(Variant(f"N = {size}", {"clients": size, **LONGER}, methods=SPACE) for size in crowd),
            *(
                Variant(label, {"clients": size, "samples": size * each, **LONGER}, methods=ALL)
                for label, size in per_client.items()
            ),
            Variant(many, {"clients": 10_000, "samples": 60_000, **LONGER}, methods=("CS",), seeds=1),
        ],
        [
            Panel("1,200 samples in all", "clients N", {f"N = {size}": str(size) for size in sizes + crowd}),
            Panel(
                "120 samples each",
                "clients N",
                {label: str(size) for label, size in by_size} | {many: "10,000\n(6 each)"},
            ),
        ],
    )


def space() -> Study:
    """The common space by its dimension, and by rounds."""
    filters = {f"{count} filters of each size": count for count in (4, 8, 16, 32, 64)}
    by_clients = {size: {f"N = {size}, {count} rounds": count for count in (1, 2, 3, 5, 10, 20)} for size in (10, 100)}
    return Study(
        "space",
        [
            *(
                Variant(label, {"space": ("patches", f"filters={count}")}, methods=SPACE)
                for label, count in filters.items()
            ),
            *(
                Variant(label, {"clients": size, "space_rounds": rounds}, methods=("CS",))
                for size, labels in by_clients.items()
                for label, rounds in labels.items()
            ),
        ],
        [
            Panel("dimension, 10 rounds", "d", {label: str(54 * count) for label, count in filters.items()}),
            *(
                Panel(f"{size} clients", "rounds", {label: str(rounds) for label, rounds in labels.items()})
                for size, labels in by_clients.items()
            ),
        ],
    )


STUDIES = tuple(
    study().experiment()
    for study in (
        *(skew, absence, precision, unseen, discriminator, averages),
        *(codes, length, models, clients, space, compute),
    )
)
