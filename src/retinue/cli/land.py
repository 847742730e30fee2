"""`retinue land`: merge branches of agents, each merge verified. Typing it is consent: nothing is asked."""

import asyncio
import sys

from retinue.app import land
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import print_json, say
from retinue.core.merge_report import LandRequest, MergeStep, describe_report, render_report
from retinue.core.terminal import escape_text

_SHOWN = 2


def run_land(options: Options) -> int:
    """Print the report; exit status 1 if a branch stayed behind."""
    asked = LandRequest(tuple(options.words), options.all, options.onto, options.dry_run, not options.no_verify)
    report = asyncio.run(land(asked, to_request(options), say=say, tell=_tell))
    if options.json:
        print_json(describe_report(report))
    else:
        sys.stdout.write("".join(f"{escape_text(line)}\n" for line in render_report(report)))
    return 1 if report.refused else 0


def _tell(step: MergeStep) -> None:
    names = ", ".join(step.branches) if len(step.branches) <= _SHOWN else f"{len(step.branches)} branches"
    match step.kind:
        case "checking":
            say(f"checking {names or 'the target'} ({step.text})")
        case "checked" | "note":
            say(f"{step.text}")
        case "asking":
            say(f"asking the author of {names}")
