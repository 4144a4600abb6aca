"""Code for all rooms: files, TOML, child processes, HTTP, statistics.

It does not depend on brokers and subscriptions. Everything here is used by two rooms or more.
"""
