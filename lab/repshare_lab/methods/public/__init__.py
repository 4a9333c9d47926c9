"""Methods that learn from public samples, which no client owns: clients share what they say about them."""
