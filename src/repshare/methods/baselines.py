"""IL: a measure of collaboration, every client alone with its own data."""

from repshare.methods.method import Method

IL = Method("IL", "independent learning")
