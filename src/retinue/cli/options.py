"""Command line parser: flags, prompts and files, with errors that suggest the closest flag.

Hand-written because argparse takes twice as long at start-up and lacks pi's two-letter short flags. Must not import
anything heavy.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from retinue.core.errors import UsageError, quote

Kind = str  # "switch", "value" or "values"

HELP = """\
retinue: a coding agent and its subagents, in one process

usage: retinue [options] [--] [@file...] [prompt...]
       retinue COMMAND [options]

  retinue -p "Where are sessions written?"      one answer on standard output
  git diff | retinue -p "Review this change"    standard input goes before the prompt
  retinue -p @notes.md "Summarise"              a file or an image goes with the prompt
  retinue -c -p "And the readers?"              continue the newest session of this folder

commands
  run AGENT TASK       one run of an agent; prints its answer (--write lets it change things, --json tells all)
  agents               agents that can be used here, and what is wrong with their files
  agents show NAME     one of them: what its file says, and why each tool is in or out
  agents new|eject|enable|disable|delete NAME   change them (--user, --project; see docs/guides/agents-cli.md)
  doctor               look for what is wrong with the configuration
  trust [DIR]          whether a folder's own configuration is used (--yes, --no, --forget)
  trust --mcp NAME     one of its MCP servers: what it would start, and whether it may (--yes, --no)
  trust --hook NAME    one of its hooks, in the same way
  trust --extension PATH   an extension that an agent file names by its path, in the same way
  trust --file PATH    one agent file of a folder that is not trusted, in the same way
  why AGENT TOOL       the chain that grants or refuses a tool
  logs, activity       what the tools did here: the newest calls (--limit N, --tool NAME), or counts per tool
  export [SESSION]     one HTML file of a session with all its runs and a timeline (-o FILE)
  serve                the terminal UI in a browser on this machine (--port N)
  mcp                  serve the delegation tools to an MCP host, such as another coding agent
  worker               take runs from a shared database (--database URL, --slots N, --total N, --drain SECONDS)
  cluster status       the workers of that database, its queues and runs (cluster prune --days N tidies it)
  models               models that can be used here, and the default one (--refresh asks providers for theirs)
  schedules            agents that start by themselves later (schedules cancel ID takes one back)
  sessions             sessions of this folder (--all: also those of other folders and of subagents)

output
  -p, --print          run the prompts, print the last answer, exit
  --mode text|json|rpc json prints every event as one JSON object a line (pi's stream), rpc takes pi's commands so

model
  --model NAME         provider/id, or part of a name; NAME:high also sets the thinking level
  --provider NAME      look for the model only there
  --api-key KEY        use this key for this run only
  --thinking LEVEL     off, minimal, low, medium, high, xhigh or max
  --models A,B         models to begin with and to turn through: names, globs, each with :LEVEL if wanted
  --offline            no network of our own accord: no search for local model servers

session
  -c, --continue       the newest session of this folder
  --session PATH|ID    a certain session; the start of an id is enough
  --session-id ID      the session with this id, made if there is none
  --session-dir DIR    keep sessions there
  --no-session         keep nothing
  -n, --name NAME      a name to recognise the session by

tools and prompt
  --agent NAME         run the main agent as this definition: its prompt, tools, model and limits
  -t, --tools A,B      exactly these tools (read, bash, edit, write, grep, find, ls)
  -xt, --exclude-tools A,B   not these
  -nt, --no-tools      none
  --system-prompt TEXT|FILE          instead of the built-in prompt
  --append-system-prompt TEXT|FILE   after it; may be repeated
  -nc, --no-context-files            do not read AGENTS.md and its kin
  -ns, --no-skills                   do not list skills

other
  -C DIR               work in DIR
  -a, --approve        trust this folder's own configuration for this run
  -na, --no-approve    ignore it
  -h, --help           this text
  -v, --version        the version

Without a key in the environment or a local model server the built-in rule-based model `offline/rules` answers.
"""


class Options:
    """The parsed command line. Not a dataclass: importing dataclasses costs more than all the rest of `--help`."""

    def __init__(self, command: str = "") -> None:
        self.command = command
        self.print = False
        self.mode = "text"
        self.model = ""
        self.provider = ""
        self.api_key = ""
        self.thinking = ""
        self.models = ""
        self.offline = False
        self.continue_ = False
        self.session = ""
        self.session_id = ""
        self.session_dir = ""
        self.no_session = False
        self.name = ""
        self.tools: str | None = None
        self.exclude_tools = ""
        self.no_tools = False
        self.system_prompt: str | None = None
        self.append_system_prompt: list[str] = []
        self.no_context_files = False
        self.no_skills = False
        self.directory = ""
        self.approve = False
        self.no_approve = False
        self.help = False
        self.version = False
        self.json = self.refresh = False
        self.all = False
        self.agent = ""
        self.words: list[str] = []
        """The arguments of a command."""
        self.write = False
        self.description: str | None = None
        self.prompt: str | None = None
        self.readonly = False
        self.user = False
        self.project = False
        self.yes = False
        self.no = False
        self.forget = False
        self.mcp = ""
        self.hook = ""
        self.extension = ""
        self.file = ""
        self.output = ""
        self.port = ""
        self.search = self.fetch = self.unfetched = False
        self.convert = False
        self.limit = ""
        self.tool = ""
        self.run = ""
        self.database = self.slots = self.total = self.drain = self.days = ""
        self.prompts: list[str] = []
        self.files: list[str] = []


COMMANDS = (
    "activity",
    "agents",
    "cluster",
    "doctor",
    "export",
    "logs",
    "mcp",
    "models",
    "run",
    "schedules",
    "serve",
    "sessions",
    "trust",
    "why",
    "worker",
)
_MOST_WORDS = {"agents": 2, "cluster": 2, "run": None, "schedules": 2, "trust": 1, "why": 2, "export": 1}
"""Maximum number of arguments per command (None: any number); commands not listed take none."""

_EVERYWHERE: dict[str, tuple[str, Kind]] = {
    "-C": ("directory", "value"),
    "-a": ("approve", "switch"),
    "--approve": ("approve", "switch"),
    "-na": ("no_approve", "switch"),
    "--no-approve": ("no_approve", "switch"),
    "-h": ("help", "switch"),
    "--help": ("help", "switch"),
    "--offline": ("offline", "switch"),
}
_MAIN: dict[str, tuple[str, Kind]] = {
    **_EVERYWHERE,
    "-p": ("print", "switch"),
    "--print": ("print", "switch"),
    "--agent": ("agent", "value"),
    "--mode": ("mode", "value"),
    "--model": ("model", "value"),
    "--provider": ("provider", "value"),
    "--api-key": ("api_key", "value"),
    "--thinking": ("thinking", "value"),
    "--models": ("models", "value"),
    "-c": ("continue_", "switch"),
    "--continue": ("continue_", "switch"),
    "--session": ("session", "value"),
    "--session-id": ("session_id", "value"),
    "--session-dir": ("session_dir", "value"),
    "--no-session": ("no_session", "switch"),
    "-n": ("name", "value"),
    "--name": ("name", "value"),
    "-t": ("tools", "value"),
    "--tools": ("tools", "value"),
    "-xt": ("exclude_tools", "value"),
    "--exclude-tools": ("exclude_tools", "value"),
    "-nt": ("no_tools", "switch"),
    "--no-tools": ("no_tools", "switch"),
    "--system-prompt": ("system_prompt", "value"),
    "--append-system-prompt": ("append_system_prompt", "values"),
    "-nc": ("no_context_files", "switch"),
    "--no-context-files": ("no_context_files", "switch"),
    "-ns": ("no_skills", "switch"),
    "--no-skills": ("no_skills", "switch"),
    "-v": ("version", "switch"),
    "--version": ("version", "switch"),
}
_LISTING: dict[str, tuple[str, Kind]] = {**_EVERYWHERE, "--json": ("json", "switch")}
_FLAGS: dict[str, dict[str, tuple[str, Kind]]] = {
    "": _MAIN,
    "models": {
        **_LISTING,
        "--model": ("model", "value"),
        "--provider": ("provider", "value"),
        "--refresh": ("refresh", "switch"),
    },
    "doctor": _LISTING,
    "activity": _LISTING,
    "logs": {
        **_LISTING,
        "--search": ("search", "switch"),
        "--fetch": ("fetch", "switch"),
        "--convert": ("convert", "switch"),
        "--limit": ("limit", "value"),
        "--tool": ("tool", "value"),
        "--run": ("run", "value"),
    },
    "mcp": {
        **_EVERYWHERE,
        "--model": ("model", "value"),
        "--provider": ("provider", "value"),
        "--api-key": ("api_key", "value"),
        "--thinking": ("thinking", "value"),
        "--no-session": ("no_session", "switch"),
    },
    "why": _LISTING,
    "worker": {
        **_EVERYWHERE,
        "--database": ("database", "value"),
        "--slots": ("slots", "value"),
        "--total": ("total", "value"),
        "--drain": ("drain", "value"),
    },
    "cluster": {
        **_LISTING,
        "--database": ("database", "value"),
        "--days": ("days", "value"),
        "--unfetched": ("unfetched", "switch"),
    },
    "serve": {
        **_EVERYWHERE,
        "--port": ("port", "value"),
        "--model": ("model", "value"),
        "--provider": ("provider", "value"),
        "--thinking": ("thinking", "value"),
        "--session-dir": ("session_dir", "value"),
        "-c": ("continue_", "switch"),
        "--continue": ("continue_", "switch"),
    },
    "export": {**_EVERYWHERE, "-o": ("output", "value"), "--session-dir": ("session_dir", "value")},
    "schedules": _LISTING,
    "agents": {
        **_LISTING,
        "--description": ("description", "value"),
        "--tools": ("tools", "value"),
        "--model": ("model", "value"),
        "--thinking": ("thinking", "value"),
        "--readonly": ("readonly", "switch"),
        "--prompt": ("prompt", "value"),
        "--user": ("user", "switch"),
        "--project": ("project", "switch"),
        "--yes": ("yes", "switch"),
    },
    "run": {
        **_LISTING,
        "--write": ("write", "switch"),
        "--model": ("model", "value"),
        "--provider": ("provider", "value"),
        "--api-key": ("api_key", "value"),
        "--thinking": ("thinking", "value"),
        "--session-id": ("session_id", "value"),
    },
    "trust": {
        **_EVERYWHERE,
        "--yes": ("yes", "switch"),
        "--no": ("no", "switch"),
        "--forget": ("forget", "switch"),
        "--mcp": ("mcp", "value"),
        "--hook": ("hook", "value"),
        "--extension": ("extension", "value"),
        "--file": ("file", "value"),
    },
    "sessions": {**_LISTING, "--all": ("all", "switch"), "--session-dir": ("session_dir", "value")},
}
_EMPTY_IS_FINE = ("tools", "system_prompt", "description", "prompt")
_CHOICES = {
    "mode": ("text", "json", "rpc"),
    "thinking": ("off", "minimal", "low", "medium", "high", "xhigh", "max"),
}
_CONFLICTS = (
    ("--approve", "--no-approve"),
    ("--tools", "--no-tools"),
    ("--continue", "--session"),
    ("--continue", "--session-id"),
    ("--continue", "--no-session"),
    ("--session", "--session-id"),
    ("--session", "--no-session"),
    ("--user", "--project"),
    ("--yes", "--no"),
    ("--yes", "--forget"),
    ("--no", "--forget"),
)


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Parse a command line. Raises UsageError with one sentence for the first mistake."""
    rest, only_prompts = list(arguments), False
    place = _find_command(arguments)
    options = Options(command="" if place is None else rest.pop(place))
    flags = _FLAGS[options.command]
    seen: dict[str, str] = {}
    while rest:
        argument = rest.pop(0)
        if only_prompts or not argument.startswith("-") or argument == "-":
            _take_word(options, argument, plain=only_prompts)
        elif argument == "--":
            only_prompts = True
        else:
            _take_flag(options, argument, rest, flags, seen)
    _check(options, seen)
    if not (options.command or options.print or options.files or only_prompts) and len(options.prompts) == 1:
        _check_command(options.prompts[0])
    return options


def _find_command(arguments: Sequence[str]) -> int | None:
    """The index of the command: the first word, which only flags common to all commands may precede."""
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in COMMANDS:
            return index
        if word not in _EVERYWHERE:
            return None
        index += 2 if _EVERYWHERE[word][1] == "value" else 1
    return None


def _take_word(options: Options, word: str, *, plain: bool) -> None:
    if options.command:
        most = _MOST_WORDS.get(options.command, 0)
        if most is not None and len(options.words) >= most:
            raise UsageError(f"retinue {options.command} takes no argument {quote(word)}; see retinue --help")
        options.words.append(word)
    elif word.startswith("@") and len(word) > 1 and not plain:
        options.files.append(word[1:])
    else:
        options.prompts.append(word)


def _take_flag(
    options: Options, argument: str, rest: list[str], flags: dict[str, tuple[str, Kind]], seen: dict[str, str]
) -> None:
    name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
    if name not in flags:
        raise UsageError(_describe_unknown(name, options.command, flags))
    target, kind = flags[name]
    if kind == "switch":
        if equals:
            raise UsageError(f"{name} takes no value, got {quote(value)}")
        setattr(options, target, True)
    else:
        if not equals:
            if not rest or (rest[0].startswith("-") and rest[0] in flags):
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if not value.strip() and target not in _EMPTY_IS_FINE:
            raise UsageError(f"{name} needs a value that is not blank")
        if kind == "values":
            getattr(options, target).append(value)
        elif target in seen:
            raise UsageError(f"{name} is given twice ({seen[target]}); once is enough")
        else:
            setattr(options, target, value)
    seen[target] = name


def _describe_unknown(name: str, command: str, flags: dict[str, tuple[str, Kind]]) -> str:
    if not command and name in {flag for each in _FLAGS.values() for flag in each}:
        owner = next(known for known, each in _FLAGS.items() if name in each)
        return f"{name} belongs to a command: retinue {owner} {name}"
    from difflib import get_close_matches

    # Compare without the dashes, which make short flags look similar.
    words = {flag.lstrip("-"): flag for flag in flags}
    close = get_close_matches(name.lstrip("-"), words, 1, 0.6)
    hint = f"; did you mean {words[close[0]]}?" if close else "; see retinue --help"
    return f"unknown option {quote(name)}{hint}"


def _check_command(word: str) -> None:
    """Reject a single word that is nearly a command name: the user should not pay for a model's answer to a typo."""
    meant = next((name for name in COMMANDS if _is_one_edit(word.lower(), name)), "")
    if word == meant:
        raise UsageError(f"a command comes before its options: retinue {meant} …; to send the word: retinue -p {word}")
    if meant:
        raise UsageError(
            f"there is no command {quote(word)}; did you mean retinue {meant}? "
            f"To send the word itself: retinue -p {word}"
        )


def _is_one_edit(word: str, name: str) -> bool:
    """Whether at most one letter is wrong, missing or extra, or two adjacent letters are swapped."""
    while word and name and word[0] == name[0]:
        word, name = word[1:], name[1:]
    while word and name and word[-1] == name[-1]:
        word, name = word[:-1], name[:-1]
    return max(len(word), len(name)) <= 1 or (len(word) == 2 and word == name[::-1])


def _check(options: Options, seen: dict[str, str]) -> None:
    for target, accepted in _CHOICES.items():
        value = getattr(options, target)
        if value and value not in accepted:
            from difflib import get_close_matches

            close = get_close_matches(value, accepted, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{seen[target]} must be one of {', '.join(accepted)}, not {quote(value)}{hint}")
    given, flags = set(seen), _FLAGS[options.command]
    for one, other in _CONFLICTS:
        if one in flags and other in flags and flags[one][0] in given and flags[other][0] in given:
            raise UsageError(f"{one} and {other} contradict each other; give one of them")


_ARGUMENTS = slice(45, 47)
"""Fields of /proc/self/stat after the process name: the start and end address of the command line."""


def cover(secrets: Iterable[str]) -> None:
    """Overwrite secrets in our own command line with stars, as whole arguments or after an equals sign."""
    wanted = {os.fsencode(secret) for secret in secrets if secret}
    if not wanted or not sys.platform.startswith("linux"):
        return
    import ctypes

    with suppress(OSError, ValueError):
        with open("/proc/self/stat", "rb") as file:
            at, end = map(int, file.read().rpartition(b")")[2].split()[_ARGUMENTS])
        for argument in ctypes.string_at(at, end - at).split(b"\0") if at else ():
            for value in {argument, argument.partition(b"=")[2]} & wanted:
                ctypes.memset(at + len(argument) - len(value), ord("*"), len(value))
            at += len(argument) + 1
