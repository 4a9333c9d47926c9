"""The relay's endpoints, one file for each kind of caller."""
