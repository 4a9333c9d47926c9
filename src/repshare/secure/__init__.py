"""Secure sums: a group learns the total of its members' vectors, and nothing else."""
