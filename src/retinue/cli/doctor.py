"""`retinue doctor`: what is wrong with the configuration, and how to fix it."""

import json
import sys

from retinue.app import run_checkup
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.core.terminal import escape_line


def run_doctor(options: Options) -> int:
    """Print the report; exit status 1 if a check fails."""
    report = run_checkup(to_request(options))
    if options.json:
        sys.stdout.write(json.dumps(report.to_json()) + "\n")
        return 1 if report.summary["failed"] else 0
    counts = report.summary
    lines = [f"{counts['passed']} passed, {counts['warnings']} warnings, {counts['failed']} failed"]
    for category in dict.fromkeys(item.category for item in report.items):
        lines += ["", f"[{category.upper()}]"]
        for item in (item for item in report.items if item.category == category):
            lines.append(f"  [{item.status.upper()}] {escape_line(item.message, 200)}")
            if item.details:
                lines.append(f"         {escape_line(item.details, 1000)}")
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if counts["failed"] else 0
