"""The app of each SuperNode: one client of the run, with its part of the data set."""

from repshare_flower import make_client_app
from repshare_flower.runs import keep_model, make_client

app = make_client_app(make_client, report=True, keep=keep_model)  # digits are public: their accuracy may be told
