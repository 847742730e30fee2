"""`retinue trust [DIR]`, and the trust question on a plain terminal.

`--mcp NAME`, `--hook NAME`, `--extension PATH`, `--file PATH` or `--command KEY` decide about one MCP server, hook,
extension, agent file or command of the settings. It is used only if the user approved its current content.
"""

import shlex
import sys
from typing import Literal

from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import ask_line, say
from retinue.core.errors import UsageError
from retinue.core.terminal import escape_line, escape_text

_KINDS: dict[Literal["mcp", "hook", "extension", "file", "command"], str] = {
    **{"mcp": "mcp", "hook": "hook", "extension": "extension", "file": "file"},
    "command": "setting",
}
"""What can be decided about, and its field of Options."""


def run_trust(options: Options) -> int:
    """Show, save or delete a trust decision."""
    if any(getattr(options, field) for field in _KINDS.values()):
        return _decide_entry(options)
    from retinue.app import DecidedFolder

    folder = DecidedFolder(options.words[0] if options.words else None)
    if options.yes or options.no or options.forget:
        folder.decide(None if options.forget else options.yes)
        if options.forget and not folder.path.is_dir():
            return 0
    project, trust = folder.read(approve=True if options.approve else False if options.no_approve else None)
    for problem in trust.diagnostics:
        say(problem.message)
    word = "trusted" if trust.trusted else "not trusted"
    shown = escape_line(str(project), 400)
    sys.stdout.write(f"{shown}: {word} ({escape_line(trust.reason, 400)})\n")
    for name in trust.protected:
        sys.stdout.write(f"  {name}\n")
    is_decided = options.yes or options.no or options.no_approve
    if not trust.trusted and trust.protected and not is_decided:
        say(f"to use these files: retinue trust {shlex.quote(shown)} --yes")
    return 0


def _decide_entry(options: Options) -> int:
    """Show an entry or a file in full, and approve it or revoke the approval."""
    (kind, name), *others = [(kind, name) for kind, field in _KINDS.items() if (name := getattr(options, field))]
    if others:
        raise UsageError(f"--{kind} and --{others[0][0]}: use one of them at a time")
    from retinue.app import EntryApproval

    approval = EntryApproval(name, kind=kind, approve=to_request(options).approve)
    if options.yes or options.no or options.forget:
        approval.decide(options.yes)
    line, entry = approval.describe()
    sys.stdout.write(f"{escape_line(line, 400)}\n")
    for text in entry:
        sys.stdout.write(f"  {escape_text(text)}\n")
    if approval.needs_decision and not (options.no or options.forget):
        say(f"to approve its current content: retinue trust --{kind} {shlex.quote(name)} --yes")
    return 0


_ANSWERS = {"y": (True, False), "a": (True, True), "n": (False, False), "v": (False, True), "": (False, False)}
"""What each letter decides: trusted, and whether the decision is saved."""
_TRIES = 3


def ask_trust(options: Options) -> None:
    """Ask whether to use this folder's configuration; the answer has the same effect as the flag."""
    is_attended = all(end is not None and end.isatty() for end in (sys.stdin, sys.stderr))
    if options.approve or options.no_approve or not is_attended:
        return
    from retinue.app import DecidedFolder

    folder = DecidedFolder()
    project, trust = folder.read(approve=None)
    if trust.trusted or not trust.notice:
        return
    found = ", ".join(escape_line(name, 60) for name in trust.protected[:8])
    say(f"{escape_line(str(project), 200)} has its own configuration: {found}")
    say("it can start programs and change what agents may do; use it only if you trust its author")
    for _ in range(_TRIES):
        line = ask_line("Use it? [y]es, [a]lways, [n]o, ne[v]er: ")
        answer = _ANSWERS.get(line.strip().lower()[:1])
        if answer is not None:
            break
    else:
        answer = (False, False)
    decision, is_saved = answer
    options.approve, options.no_approve = decision, not decision
    if is_saved:
        folder.decide(decision)
        say(f"saved; to undo: retinue trust {shlex.quote(str(project))} --forget")
