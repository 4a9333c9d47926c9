"""The commands, `repshare COMMAND`: a file for each family."""
