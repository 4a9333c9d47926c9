"""The live page: what it shows, and how that is recorded."""
