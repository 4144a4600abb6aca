"""Connections and the sessions behind them."""
