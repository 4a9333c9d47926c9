"""A real client's own run: what it learns with, and the folder that it resumes from."""
