"""What Rove is tested with, shipped so that users can test with it too.

`rove.testing.workloads` generates seeded streams and subscriptions with the standard library
alone; `rove.testing.boxes` generates the four workloads that matching is measured on, as arrays
of NumPy; `rove.testing.mqtt` runs a broker in memory, with clients, a clock and a disk that are
told what to do; `rove.testing.strategies` holds Hypothesis strategies and needs
`pip install hypothesis`.
"""
