"""The commands of an operator: `repshare relay …`. All of them work while a relay is running, but for `restore`."""
