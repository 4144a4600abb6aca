"""The metrics database: readings, their roll-ups, and the runs of experiments.

`database` stores them. `recorder` writes readings without making the caller wait. `records` has the
names of series, so that a broker, a world and the pipeline use the same ones. `rollup_job` rolls
raw readings up.
"""
