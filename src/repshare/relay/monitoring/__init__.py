"""What an operator sees: logs, metrics, and who did what."""
