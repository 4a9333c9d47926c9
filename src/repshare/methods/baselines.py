"""What collaboration is measured against. IL: every client alone with its own data. CL: one that holds everyone's."""

from repshare.methods.method import Method

CL = Method("CL", "centralized learning", models="pooled")
IL = Method("IL", "independent learning")
