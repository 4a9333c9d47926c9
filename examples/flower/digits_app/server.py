"""The app of the SuperLink: the board between the clients."""

from repshare import make_server_app
from repshare.simulation.flower.runs import describe

app = make_server_app(describe)
