"""The trust question on a plain terminal: asked once, before anything of the folder is read.

Only where somebody sits at both ends, and only when nothing has decided already; everywhere else the answer is no.
"""

import shlex
import sys

from retinue.app import open_folder
from retinue.cli.options import Options
from retinue.cli.voice import say
from retinue.core.terminal import escape_line

_ANSWERS = {"y": (True, False), "a": (True, True), "n": (False, False), "v": (False, True), "": (False, False)}
"""What a letter decides, and whether it is remembered."""
_TRIES = 3


def ask_trust(options: Options) -> None:
    """Ask whether this folder's own configuration is used; the answer counts as the flag would."""
    is_attended = all(end is not None and end.isatty() for end in (sys.stdin, sys.stderr))
    if options.approve or options.no_approve or not is_attended:
        return
    folder = open_folder(None)
    project, trust = folder.read(approve=None)
    if trust.trusted or not trust.notice:
        return
    found = ", ".join(escape_line(name, 60) for name in trust.protected[:8])
    say(f"{escape_line(str(project), 200)} brings its own configuration: {found}")
    say("it can start programs and change what agents may do; only use it if you trust who wrote it")
    for _ in range(_TRIES):
        sys.stderr.write("Use it? [y]es, [a]lways, [n]o, ne[v]er: ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        answer = _ANSWERS.get(line.strip().lower()[:1])
        if answer is not None:
            break
    else:
        answer = (False, False)
    decision, is_saved = answer
    options.approve, options.no_approve = decision, not decision
    if is_saved:
        folder.decide(decision)
        say(f"remembered; to change it: retinue trust {shlex.quote(str(project))} --forget")
