"""What every room needs and none should write again: files, TOML, child processes, statistics.

It knows nothing of brokers and subscriptions. What is here is used by two rooms or more.
"""
