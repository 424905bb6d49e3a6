"""``python -m fedlens``: the command without its script."""

import sys

from fedlens.cli import main

sys.exit(main())
