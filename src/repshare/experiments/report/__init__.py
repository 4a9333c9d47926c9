"""Recorded runs -> one HTML file that needs nothing else: to hand to a colleague."""

from repshare.experiments.report.document import make_report
from repshare.experiments.report.reading import Recorded, read_run

__all__ = ["Recorded", "make_report", "read_run"]
