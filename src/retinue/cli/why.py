"""`retinue why AGENT TOOL`: the chain that grants or refuses a tool."""

import json
import sys

from retinue.app import open_roster
from retinue.cli.options import Options
from retinue.cli.requests import to_request
from retinue.cli.voice import say
from retinue.core.errors import UsageError
from retinue.core.terminal import escape_line


def explain_right(options: Options) -> int:
    """Print every link of the chain; the answer is the first line, not the exit status."""
    if len(options.words) != 2:
        raise UsageError("say which agent and which tool, as in: retinue why Explore bash")
    agent, tool = options.words
    chain = open_roster(to_request(options), say).explain(agent, tool)
    if options.json:
        links = [{"step": link.step, "holds": link.holds, "reason": link.sentence} for link in chain.links]
        answer = {"agent": chain.agent, "tool": chain.tool, "granted": chain.is_granted, "chain": links}
        sys.stdout.write(json.dumps(answer) + "\n")
        return 0
    width = max(len(link.step) for link in chain.links)
    lines = [escape_line(chain.verdict, 400)]
    lines += [
        f"  {'✓' if link.holds else '✗'} {link.step:<{width}}  {escape_line(link.sentence, 400)}"
        for link in chain.links
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
