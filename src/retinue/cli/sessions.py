"""`retinue sessions`: list the sessions that can be continued."""

import sys

from retinue.app import list_sessions as find_sessions
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import print_json, say
from retinue.core.terminal import escape_line


def list_sessions(options: Options) -> int:
    """Print the sessions, newest first, as a table or as JSON."""
    rows = find_sessions(to_request(options), everything=options.all)
    if options.json:
        return print_json({"sessions": rows})
    if not rows:
        say("no sessions in this folder" if not options.all else "no sessions")
    for row in rows:
        when = row["modified"][:16].replace("T", " ")
        title = row["name"] or row["firstMessage"] or "(empty)"
        where = f"  {row['cwd']}" if options.all else ""
        sys.stdout.write(
            f"{row['id'][:18]:<18}  {when}  {row['messages']:>4}  {escape_line(title, 60)}{escape_line(where, 120)}\n"
        )
    return 0
