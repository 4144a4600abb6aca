"""Benchmarks and experiments, a folder a suite; nothing of the product depends on them."""
