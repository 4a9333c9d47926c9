"""Measures of a test, against scikit-learn and by hand."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, recall_score, roc_auc_score

from repshare import Client, LeNet5
from repshare.measures import find_calibration_error, measure


def draw(classes, count=200, levels=None, seed=0):
    """Random probabilities, rounded to some levels so that many are equal, and labels that they know a little of."""
    numbers = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), numbers.integers(classes, size=count - classes)])
    scores = numbers.normal(size=(count, classes)) + np.eye(classes)[labels]
    scores = np.round(scores) if levels else scores
    return torch.from_numpy(scores).softmax(dim=1).numpy(), labels


@pytest.mark.parametrize("levels", [None, "equal scores"])
@pytest.mark.parametrize("classes", [2, 3, 10])
def test_the_measures_are_scikit_learns(classes, levels):
    probabilities, labels = draw(classes, levels=levels)
    chosen = probabilities.argmax(1)
    found = measure(probabilities, probabilities, labels)
    assert found.accuracy == pytest.approx(float((chosen == labels).mean()))
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(labels, chosen))
    assert found.recalls == pytest.approx(recall_score(labels, chosen, average=None))
    given = probabilities[:, 1] if classes == 2 else probabilities
    assert found.auroc == pytest.approx(roc_auc_score(labels, given, multi_class="ovr"))


def test_the_calibration_error_by_hand():
    # Two bins: 0.9 and 0.92 are in (13/15, 14/15], one of two is right; 0.5 three times in (7/15, 8/15], one right.
    confidence = np.array([0.9, 0.92, 0.5, 0.5, 0.5])
    right = np.array([True, False, True, False, False])
    by_hand = 2 / 5 * abs(1 / 2 - 0.91) + 3 / 5 * abs(1 / 3 - 0.5)
    assert find_calibration_error(confidence, right) == pytest.approx(by_hand)
    # 0.39 and 0.4 are in one of 15 bins, (5/15, 6/15], which has its upper end.
    assert find_calibration_error(np.array([0.39, 0.4]), np.array([True, False])) == pytest.approx((1 - 0.79) / 2)
    assert find_calibration_error(np.array([1.0, 1.0, 0.0]), np.array([True, True, False])) == 0  # both ends
    assert find_calibration_error(np.array([1.0]), np.array([False])) == 1


def test_classes_without_test_samples_count_nowhere():
    probabilities, labels = draw(4)
    kept = labels != 2
    found = measure(probabilities[kept], probabilities[kept], labels[kept])
    assert found.recalls[2] is None
    others = [recall for recall in found.recalls if recall is not None]
    assert found.balanced_accuracy == pytest.approx(sum(others) / 3)
    areas = [roc_auc_score(labels[kept] == each, probabilities[kept, each]) for each in (0, 1, 3)]
    assert found.auroc == pytest.approx(np.mean(areas))


def test_test_data_of_one_class_have_no_auroc():
    probabilities, _ = draw(3, count=5)
    assert measure(probabilities, probabilities, np.ones(5, np.int64)).auroc is None


def test_a_client_measures_what_it_is_tested_by(digits):
    (images, labels), (test_images, test_labels) = digits
    torch.manual_seed(0)
    client = Client(LeNet5(), (images[:200], labels[:200]), test=(test_images, test_labels))
    record = client.round()
    found, probabilities = client.measure(), client.probabilities(test_images)
    assert found.accuracy == record.test_accuracy == client.evaluate()
    assert torch.equal(client.predict(test_images), probabilities.argmax(1))
    assert probabilities.sum(1).numpy() == pytest.approx(1)
    assert found.auroc == pytest.approx(roc_auc_score(test_labels, probabilities, multi_class="ovr"))
    with pytest.raises(ValueError, match="no test data"):
        Client(LeNet5(), (images[:50], labels[:50])).measure()
