"""Prints, for each numbered behaviour of the four systems, the tests that pin it and how they went.

The behaviours are in tests/data/conformance.toml. Exit status 1 when a behaviour has no test that has passed and no
settlement, or a test fails or names a behaviour that does not exist. `--list` only collects. `make test` makes the same
table.
"""

import argparse
import sys

from scripts.tables import CONFORMANCE, Collector, run_table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="only collect")
    parser.add_argument("paths", nargs="*", default=["tests"])
    options = parser.parse_args()
    flags = ["-m", "spec and not slow and not interop", *options.paths]
    _, is_well = run_table(Collector(CONFORMANCE), flags, has_run=not options.list)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
