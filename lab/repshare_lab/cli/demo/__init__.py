"""A collaboration to watch: a relay and its clients as real processes on this machine, ended with the demo."""
