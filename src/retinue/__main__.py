"""`python -m retinue`."""

import sys

if not sys.flags.safe_path:
    # Python puts the working directory first: a repository's `json.py` must not become a part of this program.
    del sys.path[0]

from retinue.cli.main import main

sys.exit(main())
