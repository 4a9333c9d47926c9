"""The results of a run: records, figures and tables."""
