"""The app of the SuperLink: the board between the clients."""

from repshare_flower import make_server_app
from repshare_flower.runs import describe

app = make_server_app(describe)
