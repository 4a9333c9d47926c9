"""`python -m repshare`: the same as `repshare`."""

from repshare.cli.main import main

if __name__ == "__main__":
    main()
