"""A client's samples in a common space, and the classifier that they are part of."""
