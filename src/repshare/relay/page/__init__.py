"""What the live page shows, and how it is recorded."""
