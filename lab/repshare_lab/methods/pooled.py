"""CL: a measure of collaboration, one client that holds everyone's data."""

from repshare.methods.method import Method

CL = Method("CL", "centralized learning", models="pooled")
