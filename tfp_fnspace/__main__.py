"""`python -m tfp_fnspace`."""

import sys

from tfp_fnspace.cli import main

sys.exit(main())
