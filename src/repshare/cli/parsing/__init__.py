"""A command's function turned into its options, its help and its errors."""
