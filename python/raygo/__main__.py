"""``python -m raygo`` is the command ``raygo``."""

import sys

from raygo._cli import main

if __name__ == "__main__":
    sys.exit(main())
