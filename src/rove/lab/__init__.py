"""Experiments, benchmarks and demonstrations; nothing of the product depends on them."""
