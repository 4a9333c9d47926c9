"""CL: one client that holds everyone's data, which is what collaboration is measured against."""

from repshare.methods.method import Method

CL = Method("CL", "centralized learning", models="pooled")
