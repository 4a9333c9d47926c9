"""RS, CS and other methods between Flower's SuperNodes."""
