"""The live page: what it shows, and the activity of clients that is stored for it."""
