"""One client's local training. Read `training.py` first."""
