"""Policies of sessions and subscriptions: where they belong and what they decide."""
