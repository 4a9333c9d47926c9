"""What `repshare COMMAND` does, a file for each family of commands."""
