"""Methods of clients that share class prototypes, the mean features of a class."""
