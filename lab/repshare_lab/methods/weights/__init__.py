"""Methods of clients that share weights, and learn from an average of them."""
