"""One client's local training. Read `learner.py` first."""
