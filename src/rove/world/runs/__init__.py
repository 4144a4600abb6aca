"""Scenarios, the simulation and its results."""
