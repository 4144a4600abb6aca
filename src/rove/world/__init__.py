"""A virtual world with players, walls and traffic, in virtual time: one seed, one history.

`state` holds what there is, `simulation` lets time pass, the engines tell clients what lies around
them over a publish/subscribe system, and `truth` measures how well they do. The guide is
`docs/world.md`.
"""
