"""The text of `--help`, in general and for one command, made from the table in `cli/options.py`."""

from collections.abc import Iterable

from retinue.cli.options import COMMANDS, EVERYWHERE, SECTIONS, find_flags

_INTRODUCTION = """\
retinue: a coding agent that delegates work to subagents

usage: retinue [options] [--] [@file...] [prompt...]
       retinue COMMAND [options]

  retinue -p "Where are sessions written?"      print one answer
  git diff | retinue -p "Review this change"    standard input comes before the prompt
  retinue -p @notes.md "Summarise"              attach a file or an image
  retinue -c -p "And the readers?"              continue the newest session of this folder

"""
_END = """
If no API key and no local model server is found, the built-in rule-based model `offline/rules` answers;
`retinue login` stores a key.
"""
_WIDEST = 30


def render_usage(command: str) -> str:
    """Render the help of a command; the general help if the name is empty."""
    rows = find_flags(command)
    flags = {name: (_name(name, short, value), text) for name, (short, value, text) in rows.items()}
    if not command:
        forms = [(f"{name} {form}".rstrip(), text) for name, row in COMMANDS.items() for form, text in row[2]]
        parts = [_render("commands (retinue COMMAND --help lists the options of one)", forms)]
        parts += [_render(title, (flags[name] for name in names.split())) for title, names in SECTIONS.items()]
        return _INTRODUCTION + "\n".join(parts) + _END
    forms = [(f"retinue {command} {form}".rstrip(), text) for form, text in COMMANDS[command][2]]
    common = EVERYWHERE.split()
    parts = [_render("usage", forms)]
    if own := [row for name, row in flags.items() if name not in common]:
        parts.append(_render("options", own))
    parts.append(_render("options of every command", (flags[name] for name in common)))
    return "\n".join(parts)


def _name(name: str, short: str, value: str) -> str:
    return f"{f'{short}, ' if short else ''}{name} {value}".rstrip()


def _render(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Render a section in two columns; a name that is too wide gets a line of its own."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed if len(name) <= _WIDEST), default=0)
    gap = f"\n  {'':<{width}}"
    lines = [f"  {name:<{width}}{gap if len(name) > width else ''}  {text}\n" for name, text in listed]
    return "".join((f"{title}\n", *lines))
