"""``python -m simulations.cli``: the command without its script."""

import sys

from simulations.cli import main

sys.exit(main())
