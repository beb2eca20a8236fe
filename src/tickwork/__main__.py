"""`python -m tickwork` is `tickwork`."""

import sys

from tickwork.cli.main import main

sys.exit(main())
