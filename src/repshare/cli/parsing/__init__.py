"""From a command's function to its options, its help and its errors."""
