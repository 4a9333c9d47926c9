"""What a run leaves behind: records, figures and tables."""
