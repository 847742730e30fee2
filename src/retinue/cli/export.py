"""`retinue export SESSION`: write a session with all its runs as one self-contained HTML file."""

import sys
from pathlib import Path

from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.core.terminal import escape_text


def run_export(options: Options) -> int:
    """Write the file and print its path; with `-o -`, print the page itself."""
    from retinue.views.export.page import export_session, render_export
    from retinue.views.report import find_session_file

    path = find_session_file(options.words[0] if options.words else "", to_request(options))
    if options.output == "-":
        sys.stdout.buffer.write(render_export(path).encode("utf-8", "replace"))
        return 0
    target = Path(options.output or f"{Path(path).stem}.html")
    export_session(path, target, is_asked=bool(options.output))
    sys.stdout.write(f"{escape_text(str(target))}\n")
    return 0
