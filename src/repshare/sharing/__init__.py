"""What travels between clients: representations, their bytes, and the task that they belong to. NumPy only."""
