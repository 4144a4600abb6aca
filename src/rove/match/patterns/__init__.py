"""String patterns, searched all at once by an automaton."""
