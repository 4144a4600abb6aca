"""A few lines of code per subscriber, with state, that decide what it is sent.

Policies are Python's syntax, not Python: `rove.policy.compiler` takes a subset and refuses the
rest, `rove.policy.runner` runs what it made under limits, `rove.policy.agents` is one policy at
work for one subscriber. The same in the broker, at the edge and on Spark.
"""
