"""`retinue why AGENT TOOL`: show the rules that grant or refuse a tool."""

import sys
from typing import TYPE_CHECKING, Any

from retinue.app import open_roster
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import print_json, say
from retinue.core.errors import UsageError
from retinue.core.terminal import escape_line
from retinue.views.agent import render_surfaces

if TYPE_CHECKING:
    from retinue.views.overview import RightsChain


def explain_right(options: Options) -> int:
    """Print each rule on each surface; the exit status is 0 for a refused tool too."""
    if len(options.words) != 2:
        raise UsageError("give an agent and a tool, for example: retinue why Explore bash")
    agent, tool = options.words
    answers = open_roster(to_request(options), say).explain(agent, tool)
    if options.json:
        found = [{"surfaces": list(surfaces), **_to_json(chain)} for surfaces, chain in answers]
        return print_json({**_to_json(answers[0][1]), "answers": found})
    for surfaces, chain in answers:
        where = "every surface" if len(answers) == 1 else render_surfaces(surfaces)
        width = max(len(link.step) for link in chain.links)
        lines = [escape_line(f"on {where}: {chain.verdict}", 600)]
        lines += [
            f"  {'✓' if link.holds else '✗'} {link.step:<{width}}  {escape_line(link.sentence, 400)}"
            for link in chain.links
        ]
        sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _to_json(chain: "RightsChain") -> dict[str, Any]:
    links = [{"step": link.step, "holds": link.holds, "reason": link.sentence} for link in chain.links]
    return {"agent": chain.agent, "tool": chain.tool, "granted": chain.is_granted, "chain": links}
