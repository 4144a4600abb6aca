"""Processes beside the broker: matchers and policy workers."""
