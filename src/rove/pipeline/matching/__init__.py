"""Subscriptions as an index file, matched against the columns of any DataFrame."""
