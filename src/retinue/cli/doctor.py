"""`retinue doctor`: what is wrong with the configuration, and how to fix it."""

import sys

from retinue.app import run_checkup
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import print_json
from retinue.views.toolkit import render_items, render_summary


def run_doctor(options: Options) -> int:
    """Print the report; exit status 1 if a check fails."""
    report = run_checkup(to_request(options))
    if options.json:
        print_json(report.to_json())
    else:
        sys.stdout.write("\n".join((render_summary(report), *render_items(report))) + "\n")
    return 1 if report.summary["failed"] else 0
