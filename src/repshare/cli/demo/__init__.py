"""A collaboration to look at: a relay and its clients as real processes on this machine, ended with the demo."""
