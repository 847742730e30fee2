"""`retinue logs` and `retinue activity`: tool calls in this project, as lines or as counts per tool."""

import sys

from retinue.cli.options import Options
from retinue.cli.voice import print_json
from retinue.core.errors import UsageError, quote
from retinue.views.toolkit import MOST, filter_logs, find_limit, open_log, render_counts, render_history, select_logs


def show_logs(options: Options) -> int:
    """Print the newest calls and statistics about them."""
    if options.limit and not (options.limit.isascii() and options.limit.isdigit()):
        raise UsageError(f"--limit must be a whole number, not {quote(options.limit)}")
    words = [f"--{name}" for name in ("search", "fetch", "convert") if getattr(options, name)]
    entries = select_logs(open_log().read(), tool=options.tool, run=options.run)
    most = MOST if options.json and not options.limit else find_limit(("--limit", options.limit))
    # The limit applies after the filter: `--search --limit 1` shows the last search.
    found = filter_logs(entries, words)
    found = found[max(0, len(found) - most) :]
    if options.json:
        return print_json({"entries": [entry.to_json() for entry in reversed(found)]})
    sys.stdout.write(render_history(found) + "\n")
    return 0


def show_activity(options: Options) -> int:
    """Print the number of calls and failures per tool."""
    entries = open_log().read()
    if options.json:
        tools: dict[str, dict[str, int]] = {}
        for entry in entries:
            counts = tools.setdefault(entry.tool, {"calls": 0, "success": 0, "error": 0, "rate_limited": 0})
            counts["calls"] += 1
            counts[entry.status] += 1
        return print_json({"tools": tools})
    sys.stdout.write(render_counts(entries) + "\n")
    return 0
