"""Matching beside the broker: the matchers that hold cells of subscriptions, and who moves where.

A *cell* (`rove.match.cell`) is a share of the subscriptions with everything that is known of them:
index, windows, state of evolving designs. A *matcher* is a process that holds cells. The
*coordinator*, inside the broker, sends commands to matchers in one order and takes back what they
found in that order.
Nothing here does I/O or looks at a clock: processes, files and time come from the shell.
"""
