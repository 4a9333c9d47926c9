"""The measures of collaboration. IL: every client alone with its own data. CL: one client that holds everyone's."""

from repshare.methods.method import Method

CL = Method("CL", "centralized learning", models="pooled")
IL = Method("IL", "independent learning")
