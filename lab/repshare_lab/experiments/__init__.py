"""Lists of runs: comparisons, and the evidence in tables and figures."""
