"""Differential privacy of releases: what noise, at what cost, and who has spent how much."""
