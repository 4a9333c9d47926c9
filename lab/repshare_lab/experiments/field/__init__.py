"""All methods on the same splits with the same budget, each with rates that were chosen in the same way."""

from repshare_lab.experiments.field.rates import RATES
from repshare_lab.experiments.field.study import FIELD

__all__ = ["FIELD", "RATES"]
