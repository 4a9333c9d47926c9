"""`repshare export` and `repshare predict`: the use of what a party has learned."""

import csv
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from repshare.cli.party.preview import list_data, list_doubts
from repshare.cli.terminal import say
from repshare.errors import ConfigError
from repshare.files import explain_errors, write_atomically

if TYPE_CHECKING:
    from torch import Tensor

    from repshare.party.learned import Learned


def export(state: Path, /, to: Path, party: str) -> None:
    """Write what a party has learned as ONNX: the computation from inputs to scores, with its weights.

    It is run on some of the party's own samples, and refused if its outputs differ by more than rounding. The weights
    alone are in the state folder: model.safetensors (the model's state_dict), or classifier.safetensors.

    repshare export repshare-digits-alice --to model.onnx --party party.py:alice

    Args:
        state: The state folder of join or peer.
        to: The file to write: .onnx.
        party: The party's function, as for join.
    """
    from repshare.party.exporting import classifier_as_onnx, model_as_onnx
    from repshare.party.learned import Learned

    if to.suffix != ".onnx":
        raise ConfigError(f"--to {to}: the name must end in .onnx; the weights alone are in {state}/*.safetensors")
    learned = Learned(state, party)
    samples = learned.samples()
    if learned.has_model:
        body, told = model_as_onnx(learned.model, samples), "the model, from inputs to logits"
    else:
        body = classifier_as_onnx(learned.classifier, samples)
        told = "the space and the classifier, from inputs to scores"
    with explain_errors(f"{to} cannot be written"):
        write_atomically(to, body)
    outcome = "run in onnxruntime on your own samples, with the same outcome"
    say(Console(), f"{to} ({len(body) / 1e6:.2f} MB): {told}; {outcome}")


def predict(
    state: Path,
    /,
    party: str | None = None,
    input: Path | None = None,
    output: Path | None = None,
    json: bool = False,
) -> None:
    """Predict classes with what a party has learned: its own model or the common classifier.

    A line has the sample's number, its label if the party's data say so, the class, its name if that is known, and its
    probability. No other client and no relay is asked.

    repshare predict repshare-digits-alice --party party.py:alice

    repshare predict repshare-digits-alice --party party.py:alice --input new.npy --output predictions.csv

    Args:
        state: The state folder of join or peer.
        party: The party's function, as for join.
            It may be missing if the folder has a common classifier and --input is given.
        input: Inputs to classify: .npy of shape (n, …), or .csv with a sample in each row, columns by their names.
            Default: the party's test data.
        output: The CSV file to write. Default: standard output.
        json: Print one JSON object for each sample.
    """
    from repshare.measures import count_hits
    from repshare.party.learned import Learned, read_inputs, read_named

    if json and output is not None:
        raise ConfigError("--json goes to standard output: leave --output out")
    learned = Learned(state, party)
    if input is None:
        if learned.party is None or learned.party.test is None:
            raise ConfigError("there is nothing to classify: give --input, or a --party with test data")
        samples = learned.samples()
        labels: Tensor | None = samples.labels
    elif learned.has_classifier and (columns := learned.classifier.agreement.columns):
        samples, labels = read_named(input, columns), None
    else:
        samples, labels = read_inputs(input, _example(learned)), None
    probabilities = learned.probabilities(samples)
    best = probabilities.max(dim=1)
    names, rows = learned.class_names, []
    numbers = range(len(samples)) if samples.table is None else samples.table.rows.tolist()
    for place, (chance, label) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        row: dict[str, Any] = {"sample": numbers[place]}
        row |= {} if labels is None else {"label": int(labels[place])}
        row |= {"class": label, **({"name": names[label]} if names else {}), "probability": round(chance, 6)}
        rows.append(row)
    _write(rows, output, as_json=json)
    console = Console(stderr=True)
    for line in list_data(samples):
        say(console, line)
    for warning in list_doubts(samples):
        say(console, warning, "yellow")
    if learned.has_classifier and (in_use := learned.classifier.in_use):
        told = {"together": "all clients' together", "alone": "this client's own samples alone"}[in_use]
        say(console, f"the classifier in use: that of {told}")
    if labels is not None:
        right = count_hits(probabilities.numpy(), labels.numpy()).accuracy
        say(console, f"{len(rows)} samples of the party's test data: accuracy {right:.2%}")
    if output is not None:
        say(console, f"{output}: {len(rows)} predictions")


def _as_text(value: Any) -> Any:
    """A name that a spreadsheet would compute as a formula behind an apostrophe; all else as it is."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def _example(learned: "Learned") -> Any:
    """A batch of one input, whose shape and type others must have."""
    import torch

    if learned.party is not None:
        return learned.samples().batch(torch.arange(1))[0]
    if not learned.has_classifier:
        raise ConfigError("the folder has weights, and no code of the model: give --party file.py:function")
    return torch.zeros(1, *learned.classifier.agreement.space.input_shape)


def _write(rows: list[dict[str, Any]], output: Path | None, *, as_json: bool) -> None:
    from repshare.records import to_json

    text = io.StringIO()
    if as_json:
        text.writelines(map(to_json, rows))
    else:
        table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows({key: _as_text(value) for key, value in row.items()} for row in rows)
    if output is None:
        sys.stdout.write(text.getvalue())
        return
    with explain_errors(f"{output} cannot be written"):
        write_atomically(output, text.getvalue())
