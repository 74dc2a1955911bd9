"""The program behind scripts/bench."""

import sys

from benchlib.cli import main

if __name__ == "__main__":
    sys.exit(main())
