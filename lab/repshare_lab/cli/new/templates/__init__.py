"""The files of a new project, as they are copied."""
