"""`retinue completion`: scripts that let a shell complete command lines, and the completions that they ask for.

The scripts know nothing themselves: on Tab they pass the words typed so far to `retinue completion SHELL -- WORD...`.
"""

import re
import sys
from collections.abc import Iterable, Sequence

from retinue.cli.options import COMMANDS, Options, find_flags, list_choices
from retinue.core.errors import UsageError, quote

Found = list[tuple[str, str]]
"""Completions, each with what it does; empty: the shell completes file names."""

_SCRIPTS = {
    "bash": """\
# Add to ~/.bashrc:  eval "$(retinue completion bash)"
_retinue() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _retinue retinue
""",
    "zsh": """\
#compdef retinue
# Add to ~/.zshrc, after compinit:  eval "$(retinue completion zsh)"
_retinue() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then _describe retinue found; else _files; fi
}
if [[ "$funcstack[1]" == _retinue ]]; then _retinue "$@"; else compdef _retinue retinue; fi
""",
    "fish": """\
# Save as ~/.config/fish/completions/retinue.fish
function __retinue_complete
    set -l typed (commandline -opc)
    set -l found ($typed[1] completion fish -- $typed[2..-1] (commandline -ct) 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c retinue -f -a '(__retinue_complete)'
""",
}


def run_completion(options: Options) -> int:
    """Print the script for a shell, or the completions of the last word."""
    shell, *words = options.words or [""]
    if shell not in _SCRIPTS:
        given = f", not {quote(shell)}" if shell else ""
        raise UsageError(f"retinue completion needs one of {', '.join(_SCRIPTS)}{given}")
    if not words:
        sys.stdout.write(_SCRIPTS[shell])
        return 0
    if shell == "bash":
        words = _join_values(words)
    for word, text in complete(words):
        if shell == "bash":
            sys.stdout.write(f"{word.rpartition('=')[2]}\n")
        else:
            sys.stdout.write(f"{word}{':' if shell == 'zsh' else chr(9)}{text}\n")
    return 0


def _join_values(words: Sequence[str]) -> list[str]:
    """Join `--mode`, `=` and `json` to one word: bash splits words at an equals sign."""
    joined: list[str] = []
    for word in words:
        if joined and (word == "=" or joined[-1].endswith("=")) and joined[-1].startswith("--"):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def complete(words: Sequence[str]) -> Found:
    """Return the completions of the last word of a command line; `words` are those after the program's name."""
    *before, last = words
    command, arguments, pending = _read(before)
    flags = find_flags(command)
    name, equals, _ = last.partition("=")
    if pending:
        found = _list_values(pending)
    elif equals and name in flags:
        found = [(f"{name}={word}", text) for word, text in _list_values(flags[name][1])]
    elif last.startswith("-"):
        found = [(flag, row[2]) for flag, row in flags.items()]
    elif command:
        found = _list_arguments(command, arguments)
    else:
        found = [] if arguments else [(known, row[2][0][1]) for known, row in COMMANDS.items()]
    return [(word, text) for word, text in dict(found).items() if word.startswith(last)]


def _read(words: Iterable[str]) -> tuple[str, list[str], str]:
    """Return the command, its arguments so far, and the placeholder of the value that comes next, if one does."""
    command, arguments, pending = "", list[str](), ""
    for word in words:
        rows = find_flags(command)
        values = {key: value for name, (short, value, _) in rows.items() for key in (name, short)}
        if pending:
            pending = ""
        elif word.startswith("-"):
            pending = values.get(word, "")
        elif not command and not arguments and word in COMMANDS:
            command = word
        else:
            arguments.append(word)
    return command, arguments, pending


def _list_arguments(command: str, arguments: Sequence[str]) -> Found:
    """List what may come next in the forms that begin with these arguments."""
    found: Found = []
    for form, text in COMMANDS[command][2]:
        places = [place.strip("[].") for place in form.split()]
        typed = zip(places, arguments, strict=False)
        if len(places) > len(arguments) and all(not place.islower() or word == place for place, word in typed):
            found += [(word, about or text) for word, about in _list_values(places[len(arguments)])]
    return found


def _list_values(value: str) -> Found:
    """List the values for a placeholder such as `text|json` or AGENT."""
    if value == "AGENT":
        return _list_agents()
    return [(word, "") for word in list_choices(value)]


def _list_agents() -> Found:
    from retinue.app import Request, open_roster
    from retinue.core.terminal import escape_line

    rows = open_roster(Request(), lambda text: None).list_rows()["agents"]
    # A name that a shell could read as anything but a word is left out.
    safe = [row for row in rows if re.fullmatch(r"[\w.-]+", row["name"], re.ASCII)]
    return [(row["name"], escape_line(row["description"] or "", 60)) for row in safe]
