"""Subscriptions, and the router that finds those that a publication matches."""
