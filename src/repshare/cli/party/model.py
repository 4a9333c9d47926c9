"""`repshare export` and `repshare predict`: the use of the classifier that a party has in hand."""

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
from repshare.imports import in_one_line

if TYPE_CHECKING:
    from repshare.party.classifier import SpaceClassifier
    from repshare.party.party import Party
    from repshare.samples import Samples


def export(state: Path, /, to: Path, party: str) -> None:
    """Write the classifier as ONNX: the computation from inputs to scores, with the space.

    It is run on some of the party's own samples, and refused if its outputs differ by more than rounding. The weights
    alone are in the state folder: classifier.safetensors.

    repshare export repshare-digits-alice --to classifier.onnx --party party.py:alice

    Args:
        state: The state folder of join or peer.
        to: The file to write: .onnx.
        party: The party's function, as for join.
    """
    from repshare.party.exporting import classifier_as_onnx
    from repshare.party.party import read_data
    from repshare.samples import Samples

    if to.suffix != ".onnx":
        raise ConfigError(f"--to {to}: the name must end in .onnx; the weights alone are in {state}/*.safetensors")
    own, classifier = _load(state, party)
    assert own is not None
    data, test = read_data(own, classifier.agreement)
    body = classifier_as_onnx(classifier, Samples(data if test is None else test))
    with explain_errors(f"{to} cannot be written"):
        write_atomically(to, body)
    outcome = "run in onnxruntime on your own samples, with the same outcome"
    say(Console(), f"{to} ({len(body) / 1e6:.2f} MB): the space and the classifier, from inputs to scores; {outcome}")


def predict(state: Path, /, party: str | None = None, input: Path | None = None, output: Path | None = None) -> None:
    """Predict classes with the classifier. No other client and no relay is asked.

    A line has the sample's number, its label if the party's data say so, the class, its name if that is known, and its
    probability.

    repshare predict repshare-digits-alice --party party.py:alice

    repshare predict repshare-digits-alice --input new.npy --output predictions.csv

    Args:
        state: The state folder of join or peer.
        party: The party's function, as for join: its test data are classified, and its backbone is the space's.
        input: Inputs to classify: .npy of shape (n, …), or .csv where the task names its columns.
            Default: the party's test data.
        output: The CSV file to write. Default: standard output.
    """
    import numpy as np

    from repshare.measures import count_hits
    from repshare.party.party import read_data
    from repshare.samples import EVALUATION_BATCH, Samples

    own, classifier = _load(state, party)
    if input is not None:
        samples, labels = _read_inputs(input, classifier), None
    elif own is not None and (test := read_data(own, classifier.agreement)[1]) is not None:
        samples = Samples(test)
        labels = samples.labels.numpy()
    else:
        raise ConfigError("there is nothing to classify: give --input, or a --party with test data")
    batches = [classifier.probabilities(batch).double().numpy() for batch, _ in samples.in_order(EVALUATION_BATCH)]
    probabilities = np.concatenate(batches)
    names, rows = classifier.agreement.class_names, list[dict[str, Any]]()
    for place, label in enumerate(probabilities.argmax(axis=1).tolist()):
        row: dict[str, Any] = {"sample": place if samples.table is None else int(samples.table.rows[place])}
        row |= {} if labels is None else {"label": int(labels[place])}
        row |= {"class": label, **({"name": _as_text(names[label])} if names else {})}
        rows.append({**row, "probability": round(float(probabilities[place, label]), 6)})
    _write(rows, output)
    console = Console(stderr=True)
    for line in list_data(samples):
        say(console, line)
    for warning in list_doubts(samples):
        say(console, warning, "yellow")
    if classifier.in_use:
        told = {"together": "all clients together", "alone": "this client's own samples alone"}[classifier.in_use]
        say(console, f"the classifier in use: that of {told}")
    if labels is not None:
        right = count_hits(probabilities, labels).accuracy
        say(console, f"{len(rows)} samples of the party's test data: accuracy {right:.2%}")
    if output is not None:
        say(console, f"{output}: {len(rows)} predictions")


def _load(state: Path, reference: str | None) -> "tuple[Party | None, SpaceClassifier]":
    """The party of `file.py:function`, if any, and the classifier in its state folder."""
    from repshare.party.classifier import load_classifier
    from repshare.party.party import load_party
    from repshare.space.learner import FILE

    party = None if reference is None else load_party(reference, 0)
    if not (state / FILE).exists():
        if not (state / "run.json").exists():
            raise ConfigError(f"{state} is no state folder of join or peer: there is no run.json")
        kept = "models/ (compare --keep-models)" if (state / "models").is_dir() else "model.safetensors"
        raise ConfigError(f"{state} has no classifier of a space: a network's weights are in {kept}")
    return party, load_classifier(state / FILE, backbone="" if party is None else party.backbone)


def _read_inputs(path: Path, classifier: "SpaceClassifier") -> "Samples":
    """The inputs in an .npy file, or in a .csv file by the columns agreed on; others are ignored."""
    import numpy as np
    import torch

    from repshare.samples import Samples
    from repshare.table import read_table

    if columns := classifier.agreement.columns:
        if path.suffix != ".csv":
            raise ConfigError(f"{path} has no names of columns, by which the task's tables are read: give a .csv file")
        return Samples(read_table(path, columns, ignored=None))
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as .npy: {in_one_line(error)}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise ConfigError(f"{path} is no array of numbers")
    shape = classifier.agreement.space.input_shape
    if array.shape[1:] != shape or not len(array):
        raise ConfigError(f"{path} has inputs of shape {array.shape}, not (n, {', '.join(map(str, shape))})")
    return Samples((torch.from_numpy(array).float(), torch.zeros(len(array), dtype=torch.int64)))


def _as_text(name: str) -> str:
    """A name that a spreadsheet would compute as a formula behind an apostrophe; another as it is."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def _write(rows: list[dict[str, Any]], output: Path | None) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    if output is None:
        sys.stdout.write(text.getvalue())
        return
    with explain_errors(f"{output} cannot be written"):
        write_atomically(output, text.getvalue())
