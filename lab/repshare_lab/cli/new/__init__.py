"""`repshare new`: a small project to start from."""
