"""Lets `python -m rove` do what `rove` does, for when the script is not on the PATH."""

import sys

from rove.cli import main

if __name__ == "__main__":
    sys.exit(main())
