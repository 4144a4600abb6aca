"""Every way in which a user's input or surroundings can be at fault.

    RoveError            catch this one to catch them all
    └── UsageError       the command line was wrong

An error whose class is here is the user's to mend: the command line prints its text as one
line, without a traceback, so the text has to say what was given, what is allowed and what to
do. Anything else that reaches the user is a bug of ours.

`rove.lang` stands alone and has a tree of its own, rooted in `rove.lang.errors`.
"""


class RoveError(Exception):
    """The base of Rove's errors."""


class UsageError(RoveError):
    """The command line was wrong: an unknown command, a missing or malformed argument."""
