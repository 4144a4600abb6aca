"""A virtual world with players, walls and traffic, in virtual time: one seed, one history.

`runs.state` holds the state, `runs.simulation` advances time, the engines inform clients of their
surroundings over a publish/subscribe system, and `engines.truth` measures how well they do. The
guide is `docs/world.md`.
"""
