"""Exchanges: where releases go and teachers come from."""

from repshare.board import Server
from repshare.exchange.exchange import Exchange, Traffic
from repshare.exchange.local import LocalExchange

__all__ = ["Exchange", "LocalExchange", "Server", "Traffic"]
