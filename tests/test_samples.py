"""A client's data in any form: the same batches, or one line that says what is wrong."""

import numpy as np
import pandas
import pytest
import torch
from datasets import Dataset as HuggingFace
from torch import nn
from torch.utils.data import DataLoader

from repshare import Client
from repshare.errors import DataError
from repshare.samples import Samples

INPUTS = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 3


class Reading:
    """A map-style dataset."""

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, index):
        return INPUTS[index], LABELS[index]


def train(data):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    client = Client(model, data)
    return [record.ce for record in client.rounds(2)], model[0].weight.tolist()


@pytest.mark.parametrize(
    "data",
    [
        Reading(),
        HuggingFace.from_dict({"row": INPUTS.tolist(), "label": LABELS.tolist()}),
    ],
    ids=["dataset", "hugging face"],
)
def test_a_dataset_trains_to_the_bits_of_a_pair(data):
    assert train(data) == train((INPUTS, LABELS))


def test_a_mapping_of_arrays_is_indexed_by_sample():
    samples = Samples(({"a": INPUTS.numpy(), "b": INPUTS}, LABELS), rows=torch.tensor([3, 1, 2]))
    inputs, labels = samples.part(torch.tensor([0, 2])).batch(torch.tensor([1, 0]))
    assert torch.equal(inputs["a"], INPUTS[[2, 3]])
    assert torch.equal(inputs["a"], inputs["b"])
    assert labels.tolist() == [2, 0]


class Two(nn.Module):
    """A model of two named inputs."""

    def __init__(self):
        super().__init__()
        self.dense, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

    def forward(self, a, b):
        return self.head(torch.tanh(self.dense(a - b)))


def test_a_client_predicts_for_a_mapping():
    inputs = {"a": INPUTS, "b": torch.ones(60, 1)}
    client = Client(Two(), (inputs, LABELS))
    assert client.predict(inputs).tolist() == client.model(**inputs).argmax(1).tolist()


def with_a_hole():
    inputs = INPUTS.clone()
    inputs[53, 2] = torch.nan
    return inputs


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((with_a_hole(), LABELS), r"sample 53 contain NaN or infinity"),
        ((INPUTS, np.array(["a"] * 60)), r"labels are words \('a'\): number them from 0"),
        ((INPUTS, ["a"] * 60), r"labels are words \('a'\)"),
        ((np.array([[1.0, 2.0], [3.0, "high"]], object), np.array([0, 1])), "but 'high' in row 1, column 1 is a word"),
        (pandas.DataFrame(INPUTS), r"a DataFrame is no array: give data=\(frame"),
        ((pandas.DataFrame(INPUTS), LABELS), r"a DataFrame is no array: give data=\(frame"),
        (({"a": INPUTS, "b": INPUTS[1:]}, LABELS), "there are 59 inputs but 60 labels"),
        (HuggingFace.from_dict({"row": INPUTS.tolist(), "target": LABELS.tolist()}), "must be called label"),
        (DataLoader(Reading()), "give the loader's dataset"),
        (iter([]), "has no samples by index"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_one_line(data, message):
    with pytest.raises(DataError, match=message) as caught:
        Samples(data)
    assert "\n" not in str(caught.value)
