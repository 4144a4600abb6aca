"""Patterns of strings, searched all at once by an automaton."""
