"""How Hypothesis behaves here.

`make test` must say the same thing twice, on every machine, so the default profile draws the
same examples each time. Looking for new ones is the business of `make soak`. No deadlines in
either: they measure the machine's neighbours.
"""

from hypothesis import settings

settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("soak", deadline=None, max_examples=20_000, print_blob=True)
settings.load_profile("default")
