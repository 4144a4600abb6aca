"""`rove pipeline` and `rove backtest`."""
