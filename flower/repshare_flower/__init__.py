"""The same clients and servers inside Flower: a ClientApp and a ServerApp, whose messages carry what an exchange would.

What is between the two apps is in `messages`, `nodes` and `rounds`, which need no Flower.
"""

from repshare_flower.apps import make_client_app, make_server_app
from repshare_flower.rounds import FlowerRun

__all__ = ["FlowerRun", "make_client_app", "make_server_app"]
