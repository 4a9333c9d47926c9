"""Exchanges: where releases go and teachers come from."""

from repshare.exchange.exchange import Exchange, Traffic
from repshare.exchange.local import LocalExchange, Server

__all__ = ["Exchange", "LocalExchange", "Server", "Traffic"]
