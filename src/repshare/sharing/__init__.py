"""The data that travels between clients: representations, their bytes, and the task they belong to. NumPy only."""
