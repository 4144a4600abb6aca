"""Inhabitants: what they do, where they walk, what they carry."""
