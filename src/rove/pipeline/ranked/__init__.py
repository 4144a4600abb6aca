"""Ranked subscriptions over history: the broker's windows, run by bucket."""
