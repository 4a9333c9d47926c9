"""The commands of a party: join, peer, and the use of what it has learned."""
