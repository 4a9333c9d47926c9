"""Samples with labels: where they come from, that they are what they should be, and who gets which."""

from repshare_lab.data.contents import DATASETS
from repshare_lab.data.datasets import Dataset, Splits, load
from repshare_lab.data.partition import dirichlet, histogram, shards, uniform

__all__ = ["DATASETS", "Dataset", "Splits", "dirichlet", "histogram", "load", "shards", "uniform"]
