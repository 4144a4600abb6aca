"""Metrics: what was measured, when, and where it is kept for those who draw or judge it.

`database` is the place, `recorder` the way into it for those who must not wait. Names are made in
`naming`, so that a broker, a world and a pipeline call things alike.
"""
