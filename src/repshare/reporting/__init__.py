"""Recorded runs -> one HTML file that needs nothing else: to hand to a colleague."""

from repshare.reporting.document import make_report
from repshare.reporting.reading import Recorded, read_run

__all__ = ["Recorded", "make_report", "read_run"]
