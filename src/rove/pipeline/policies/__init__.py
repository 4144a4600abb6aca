"""Subscribers' policies over history."""
