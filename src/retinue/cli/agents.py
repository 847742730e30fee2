"""`retinue agents`: list and show agents; create, copy, enable, disable and delete their files."""

import shlex
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retinue.app import open_roster
from retinue.cli.options import Options
from retinue.cli.prompts import check_text, read_stdin, to_request
from retinue.cli.voice import ask_line, print_json, say
from retinue.core.errors import UsageError, quote
from retinue.core.terminal import escape_line, escape_text
from retinue.views.agent import render_details

if TYPE_CHECKING:
    from retinue.views.overview import AgentDetails, Roster

ACTIONS = ("show", "new", "eject", "enable", "disable", "delete", "convert")
MARKS = {"project": "•", "user": "◦", "builtin": " "}
_OWN_FLAGS = {
    "new": ("description", "tools", "model", "thinking", "readonly", "prompt", "user", "project"),
    "eject": ("user", "project"),
    "disable": ("user", "project"),
    "delete": ("yes",),
    "convert": ("to", "user", "project"),
}


def run_agents(options: Options) -> int:
    """Run the action in `options.words`; without one, list the agents."""
    action, *names = options.words or [""]
    if action and action not in ACTIONS:
        raise UsageError(f"unknown action {quote(action)}; use retinue agents {', '.join(ACTIONS)}")
    if action and not names and action != "new":
        raise UsageError(f"retinue agents {action} needs a name")
    _check_flags(options, action)
    roster = open_roster(to_request(options), say)
    if not action:
        return _list(roster, as_json=options.json)
    if action == "show":
        return _show(roster.describe(names[0]), as_json=options.json)
    if action == "convert":
        return _convert(roster, names[0], options)
    path = _create(roster, names, options) if action == "new" else _change(roster, action, names[0], options)
    if path:
        sys.stdout.write(f"{escape_text(path)}\n")
        if action != "delete" and roster.files.needs_consent(path):
            _offer(roster, path, is_approved=options.approve)
    return 0


def _convert(roster: "Roster", name: str, options: Options) -> int:
    """Write an agent for another tool: the path goes to standard output, the report to standard error."""
    path, reports = roster.files.convert(name, options.to, in_project=options.project)
    sys.stdout.write(f"{escape_text(path)}\n")
    for report in reports:
        say(f"{report.field}: {report.status}" + (f" ({report.note})" if report.note else ""))
    if roster.files.needs_consent(path):
        _offer(roster, path, is_approved=options.approve)
    return 0


def _offer(roster: "Roster", path: str, *, is_approved: bool) -> None:
    """Ask whether to use a new agent file in a folder that is not trusted."""
    if not is_approved and sys.stdin.isatty():
        question = "This folder is not trusted. Use this one file anyway? [y/N] "
        is_approved = _ask(question).lower() in ("y", "yes")
    if is_approved:
        roster.files.accept(path)
    else:
        remedy = f"retinue trust --file {shlex.quote(path)} --yes"
        say(f"the file is not used yet because this folder is not trusted; to use it: {remedy}")


def _check_flags(options: Options, action: str) -> None:
    mine = _OWN_FLAGS.get(action, ())
    for name in (*_OWN_FLAGS["new"], *_OWN_FLAGS["delete"], *_OWN_FLAGS["convert"]):
        if name not in mine and getattr(options, name) not in (False, None, ""):
            what = f"retinue agents {action}".rstrip()
            raise UsageError(f"{what} has no option --{name}; see retinue agents --help")


def _change(roster: "Roster", action: str, name: str, options: Options) -> str:
    match action:
        case "eject":
            return roster.files.eject(name, in_project=options.project)
        case "enable":
            return roster.files.enable(name)
        case "disable":
            return roster.files.disable(name, in_project=options.project)
        case _:
            return _delete(roster, name, is_sure=options.yes)


def _delete(roster: "Roster", name: str, *, is_sure: bool) -> str:
    definition = roster.find(name)
    if definition.source == "builtin":
        return str(roster.files.delete(name))  # raises with the reason
    if not is_sure:
        if not sys.stdin.isatty():
            raise UsageError(f"this deletes {definition.path}; confirm with --yes")
        if _ask(f"delete {definition.path}? [y/N] ").lower() not in ("y", "yes"):
            say("nothing was deleted")
            return ""
    return str(roster.files.delete(name))


def _create(roster: "Roster", names: list[str], options: Options) -> str:
    missing = [] if names else ["NAME"]
    missing += [f"--{flag}" for flag in ("description", "prompt") if not (getattr(options, flag) or "").strip()]
    if missing and sys.stdin.isatty():
        names = [_interview(roster, names, options)]
    elif missing:
        raise UsageError(f"retinue agents new needs {', '.join(missing)}; in a terminal it asks for what is missing")
    for flag in ("description", "tools", "model", "prompt"):
        check_text(getattr(options, flag) or "", f"--{flag}")
    prompt = read_stdin(wait_s=None) if options.prompt == "-" else options.prompt or ""
    tools = None if options.tools is None else [word.strip() for word in options.tools.split(",") if word.strip()]
    fields: dict[str, str | bool | None] = {
        "name": names[0],
        "description": " ".join((options.description or "").split()),
        "tools": "none" if tools == [] else ", ".join(tools) if tools else None,
        "readonly": True if options.readonly else None,
        "model": options.model or None,
        "thinking": options.thinking or None,
    }
    return str(roster.files.create(names[0], fields, prompt, in_project=options.project))


def _interview(roster: "Roster", names: list[str], options: Options) -> str:
    """Ask for what is missing, each with a default where there is one; returns the name."""
    if not (options.user or options.project):
        default = "project" if roster.trust.trusted else "user"
        places = f"user: all projects, project: {escape_line(str(roster.paths.project), 60)}"
        options.project = _choose(f"Where ({places})", ("user", "project"), default) == "project"
    name = names[0] if names else _insist("Name (letters, digits and dashes), such as test-writer: ")
    while problem := _find_problem(roster.files.check_new, name, in_project=options.project):
        say(problem)
        name = _insist("Another name: ")
    if not (options.description or "").strip():
        options.description = _insist("When should it be used (one sentence)? ")
    if options.tools is None:
        answer = _ask(question := "Tools, such as read, grep, bash, or none [all]: ")
        while problem := _find_problem(roster.files.check_tools, answer):
            say(problem)
            answer = _ask(question)
        options.tools = None if answer in ("", "all") else "" if answer == "none" else answer
    if not options.readonly:
        options.readonly = _choose("Read-only", ("y", "n"), "n") == "y"
    options.model = options.model or _ask("Model [the caller's]: ")
    if not (options.prompt or "").strip():
        options.prompt = _read_instructions()
    return name


def _find_problem(check: Callable[..., None], *given: str, **named: bool) -> str:
    try:
        check(*given, **named)
    except UsageError as error:
        return str(error)
    return ""


def _read_instructions() -> str:
    sys.stderr.write("Instructions: its role, how it works, what it reports. End with a line with only a dot:\n")
    lines: list[str] = []
    while (line := sys.stdin.readline()) and line.rstrip("\r\n") != ".":
        lines.append(line)
    return "".join(lines)


def _choose(question: str, accepted: tuple[str, ...], default: str) -> str:
    """Ask for one of some words; the first letter is enough, an empty answer is the default."""
    while answer := _ask(f"{question} ({'/'.join(accepted)}) [{default}]: ").lower():
        if chosen := [word for word in accepted if word.startswith(answer) or answer.startswith(word)]:
            return chosen[0]
    return default


def _insist(question: str) -> str:
    """Ask until there is an answer. Raises UsageError if the input ends."""
    while not (answer := (line := ask_line(question)).strip()):
        if not line:
            raise UsageError("the input ended before the agent was described; nothing was created")
    return answer


def _ask(question: str) -> str:
    return ask_line(question).strip()


def _list(roster: "Roster", *, as_json: bool) -> int:
    found = roster.list_rows()
    if as_json:
        return print_json(found)
    groups = roster.group_rows(found["agents"])
    width = min(30, max((len(row["name"]) for row, *_ in groups), default=0))
    for source in ("project", "user", "builtin"):
        own = [group for group in groups if group[0]["source"] == source]
        if own:
            sys.stdout.write(f"[{source}]\n")
        for row, *variants in own:
            about = escape_line(row["description"] or "(no description)", 60)
            lines = [f"{about}\n({_render_facts(row, found['elsewhere'])})"]
            lines += [f"also {each['name']} ({_render_facts(each, found['elsewhere'])})" for each in variants]
            mark = "✕" if not row["enabled"] else MARKS[source]
            text = "\n".join(lines).replace("\n", f"\n{'':<{width + 4}}")
            sys.stdout.write(f"{mark} {escape_line(row['name'], 60):<{width}}  {text}\n")
    files = {item["path"] for item in found["diagnostics"] if item["severity"] == "error"}
    for item in found["diagnostics"]:
        say(f"{item['severity']}: {item['message']}")
    if files:
        say(f"agent files with errors: {len(files)}")
    return 0


def _render_facts(row: dict[str, Any], elsewhere: dict[str, Any]) -> str:
    tools = [*row["tools"], *(["tools of extensions or servers"] if row["name"] in elsewhere else [])]
    facts = ["read-only" if row["readonly"] else "read/write", row["dialect"], row["model"] or ""]
    ignored = sum(field["status"] == "ignored" for field in row["fields"])
    facts += [", ".join(tools) or "no tools", f"{ignored} ignored field{'s' * (ignored > 1)}" if ignored else ""]
    facts.append("" if row["enabled"] else "disabled")
    facts.append(f"on {', '.join(row['surfaces'])}" if row.get("surfaces") else "")
    return " · ".join(fact for fact in facts if fact)


def _show(details: "AgentDetails", *, as_json: bool) -> int:
    about = details.to_json()
    if as_json:
        return print_json(about)
    sys.stdout.write(render_details(about) + "\n")
    return 0
