"""Fault and fuzz runs of the relay. Tests do short ones; `make soak` does long ones and writes lab/notebook/soak.md."""
