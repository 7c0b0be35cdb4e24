"""`python -m fastshard`: the same as the command `fastshard`."""

import sys

from fastshard.cli import main

# Worker processes import this module under another name.
if __name__ == "__main__":
    sys.exit(main())
