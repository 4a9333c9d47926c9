"""Monitoring for operators: logs, metrics, and who did what."""
