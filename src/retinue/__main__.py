"""`python -m retinue`."""

import sys

from retinue.cli.main import main

sys.exit(main())
