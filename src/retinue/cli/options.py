"""Command line parser: flags, prompts and files, with errors that suggest the closest flag.

Hand-written because argparse takes twice as long at start-up and lacks pi's two-letter short flags. Must not import
anything heavy.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress

from retinue.core.errors import UsageError, quote

HELP = """\
retinue: a coding agent that delegates work to subagents

usage: retinue [options] [--] [@file...] [prompt...]
       retinue COMMAND [options]

  retinue -p "Where are sessions written?"      print one answer
  git diff | retinue -p "Review this change"    standard input comes before the prompt
  retinue -p @notes.md "Summarise"              attach a file or an image
  retinue -c -p "And the readers?"              continue the newest session of this folder

commands
  run AGENT TASK       run one agent and print its answer (--write: may change files; --json: full result)
  agents               list the agents of this folder and problems in their files
  agents show NAME     show an agent's file and why it has each tool or not
  agents new|eject|enable|disable|delete NAME   change agent files (--user, --project; see docs/guides/agents-cli.md)
  doctor               check the configuration
  trust [DIR]          show or decide whether a folder's own configuration is used (--yes, --no, --forget)
  trust --mcp NAME     show or decide whether one of its MCP servers may be started
  trust --hook NAME    the same for one of its hooks
  trust --extension PATH   the same for an extension that an agent file names by its path
  trust --file PATH    the same for one agent file of a folder that is not trusted
  why AGENT TOOL       explain why an agent has a tool or not
  logs, activity       list the newest tool calls of this project (--limit N, --tool NAME), or count them per tool
  export [SESSION]     write a session with all its runs and a timeline as one HTML file (-o FILE)
  serve                open the terminal UI in a browser on this machine (--port N)
  mcp                  serve the delegation tools to an MCP host, such as another coding agent
  worker               execute runs from a shared database (--database URL, --slots N, --total N, --drain SECONDS)
  cluster status       show workers, queues and runs of that database (cluster prune --days N deletes old runs)
  login [PROVIDER]     check an API key and store it in auth.json (a pipe is read instead of asking; --no-check)
  logout [PROVIDER]    remove it
  models               list the available models and the default (--refresh: ask the providers for their models)
  schedules            list scheduled agents (schedules cancel ID: cancel one)
  sessions             list the sessions of this folder (--all: also those of other folders and of subagents)

output
  -p, --print          run the prompts, print the last answer and exit
  --mode text|json|rpc json: print every event as a line of JSON (pi's format); rpc: read pi's commands from stdin

model
  --model NAME         provider/id, or part of a name; NAME:high also sets the thinking level
  --provider NAME      use only models of this provider
  --api-key KEY        use this key for this run only
  --thinking LEVEL     off, minimal, low, medium, high, xhigh or max
  --models A,B         models to start with and to cycle through: names or globs, each optionally with :LEVEL
  --offline            do not search for local model servers

session
  -c, --continue       continue the newest session of this folder
  --session PATH|ID    open this session; the start of an id is enough
  --session-id ID      open the session with this id, or create it
  --session-dir DIR    store sessions in this folder
  --no-session         do not save the session
  -n, --name NAME      name the session

tools and prompt
  --agent NAME         run the main agent with this agent file: its prompt, tools, model and limits
  -t, --tools A,B      use only these tools (read, bash, edit, write, grep, find, ls)
  -xt, --exclude-tools A,B   do not use these tools
  -nt, --no-tools      use no tools
  --system-prompt TEXT|FILE          replace the built-in prompt
  --append-system-prompt TEXT|FILE   append to the prompt; may be repeated
  -nc, --no-context-files            do not read AGENTS.md and similar files
  -ns, --no-skills                   do not list skills

other
  -C DIR               work in DIR
  -a, --approve        trust this folder's own configuration for this run
  -na, --no-approve    ignore this folder's own configuration
  -h, --help           show this help
  -v, --version        show the version

If no API key and no local model server is found, the built-in rule-based model `offline/rules` answers;
`retinue login` stores a key.
"""


class Options:
    """The parsed command line. Not a dataclass: importing dataclasses costs more than all the rest of `--help`."""

    def __init__(self, command: str = "") -> None:
        self.command = command
        self.words: list[str] = []
        """The arguments of a command."""
        self.prompts: list[str] = []
        self.files: list[str] = []
        self.mode = "text"
        self.append_system_prompt: list[str] = []
        self.tools: str | None = None
        self.system_prompt: str | None = None
        self.description: str | None = None
        self.prompt: str | None = None
        self.help = self.version = self.json = self.print = False
        self.approve = self.no_approve = self.offline = False
        self.model = self.provider = self.api_key = self.thinking = self.models = self.agent = ""
        self.continue_ = self.no_session = False
        self.session = self.session_id = self.session_dir = self.name = ""
        self.no_tools = self.no_context_files = self.no_skills = False
        self.exclude_tools = self.directory = ""
        self.refresh = self.all = self.write = self.readonly = False
        self.user = self.project = self.yes = self.no = self.forget = False
        self.mcp = self.hook = self.extension = self.file = ""
        self.output = self.port = ""
        self.search = self.fetch = self.convert = self.unfetched = False
        self.no_check = False
        self.limit = self.tool = self.run = ""
        self.database = self.slots = self.total = self.drain = self.days = ""


_MOST_WORDS = {
    "agents": 2,
    "cluster": 2,
    "run": None,
    "schedules": 2,
    "trust": 1,
    "why": 2,
    "export": 1,
    "login": 1,
    "logout": 1,
}
"""Maximum number of arguments per command (None: any number); commands not listed take none."""

_SHORT = {
    **{"-C": "--directory", "-a": "--approve", "-na": "--no-approve", "-h": "--help", "-p": "--print"},
    **{"-c": "--continue", "-n": "--name", "-t": "--tools", "-xt": "--exclude-tools", "-nt": "--no-tools"},
    **{"-nc": "--no-context-files", "-ns": "--no-skills", "-v": "--version", "-o": "--output"},
}
_SHORT_ONLY = ("--directory", "--output")
_EVERYWHERE = "--directory= --approve --no-approve --help --offline"
_MODEL = "--model= --provider= --api-key= --thinking="
_MAIN = (
    f"{_EVERYWHERE} --print --agent= --mode= {_MODEL} --models= --continue --session= --session-id= --session-dir= "
    "--no-session --name= --tools= --exclude-tools= --no-tools --system-prompt= --append-system-prompt= "
    "--no-context-files --no-skills --version"
)
_LISTING = f"{_EVERYWHERE} --json"
# As in getopt, a flag that ends in "=" takes a value.
_TABLE = {
    "": _MAIN,
    "models": f"{_LISTING} --model= --provider= --refresh",
    "doctor": _LISTING,
    "activity": _LISTING,
    "logs": f"{_LISTING} --search --fetch --convert --limit= --tool= --run=",
    "login": f"{_EVERYWHERE} --no-check",
    "logout": _EVERYWHERE,
    "mcp": f"{_EVERYWHERE} {_MODEL} --no-session",
    "why": _LISTING,
    "worker": f"{_EVERYWHERE} --database= --slots= --total= --drain=",
    "cluster": f"{_LISTING} --database= --days= --unfetched",
    "serve": f"{_EVERYWHERE} --port= --model= --provider= --thinking= --session-dir= --continue",
    "export": f"{_EVERYWHERE} --output= --session-dir=",
    "schedules": _LISTING,
    "agents": f"{_LISTING} --description= --tools= --model= --thinking= --readonly --prompt= --user --project --yes",
    "run": f"{_LISTING} --write {_MODEL} --session-id=",
    "trust": f"{_EVERYWHERE} --yes --no --forget --mcp= --hook= --extension= --file=",
    "sessions": f"{_LISTING} --all --session-dir=",
}
COMMANDS = tuple(sorted(name for name in _TABLE if name))


def _read_flags(listed: str) -> dict[str, tuple[str, bool]]:
    """Return the flags of a list by name, each with its field of Options and whether it takes a value."""
    flags = {}
    for entry in listed.split():
        name = entry.rstrip("=")
        field = "continue_" if name == "--continue" else name[2:].replace("-", "_")
        names = [short for short, long in _SHORT.items() if long == name]
        for each in names if name in _SHORT_ONLY else (name, *names):
            flags[each] = field, entry.endswith("=")
    return flags


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
    flags = _read_flags(_TABLE[options.command])
    seen: dict[str, str] = {}
    while rest:
        argument = rest.pop(0)
        if only_prompts or not argument.startswith("-") or argument == "-":
            _take_word(options, argument, plain=only_prompts)
        elif argument == "--":
            only_prompts = True
        else:
            _take_flag(options, argument, rest, flags, seen)
    _check(options, seen, flags)
    if not (options.command or options.print or options.files or only_prompts) and len(options.prompts) == 1:
        _check_command(options.prompts[0])
    return options


def _find_command(arguments: Sequence[str]) -> int | None:
    """The index of the command: the first word, which only flags common to all commands may precede."""
    index, common = 0, _read_flags(_EVERYWHERE)
    while index < len(arguments):
        word = arguments[index]
        if word in COMMANDS:
            return index
        if word not in common:
            return None
        index += 2 if common[word][1] else 1
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
    options: Options, argument: str, rest: list[str], flags: dict[str, tuple[str, bool]], seen: dict[str, str]
) -> None:
    name, equals, value = argument.partition("=") if argument.startswith("--") else (argument, "", "")
    if name not in flags:
        raise UsageError(_describe_unknown(name, options.command, flags))
    target, takes_value = flags[name]
    if not takes_value:
        if equals:
            raise UsageError(f"{name} takes no value, but got {quote(value)}")
        setattr(options, target, True)
    else:
        if not equals:
            if not rest or (rest[0].startswith("-") and rest[0] in flags):
                raise UsageError(f"{name} needs a value")
            value = rest.pop(0)
        if not value.strip() and target not in _EMPTY_IS_FINE:
            raise UsageError(f"{name} needs a value that is not blank")
        if isinstance(many := getattr(options, target), list):
            many.append(value)
        elif target in seen:
            raise UsageError(f"{name} is given twice; use it once")
        else:
            setattr(options, target, value)
    seen[target] = name


def _describe_unknown(name: str, command: str, flags: dict[str, tuple[str, bool]]) -> str:
    owner = next((known for known, listed in _TABLE.items() if name in _read_flags(listed)), "")
    if not command and owner:
        return f"{name} needs a command: retinue {owner} {name}"
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
        raise UsageError(
            f"put the command before its options: retinue {meant} …; to send the word as a prompt: retinue -p {word}"
        )
    if meant:
        raise UsageError(
            f"unknown command {quote(word)}; did you mean retinue {meant}? "
            f"To send the word as a prompt: retinue -p {word}"
        )


def _is_one_edit(word: str, name: str) -> bool:
    """Whether at most one letter is wrong, missing or extra, or two adjacent letters are swapped."""
    while word and name and word[0] == name[0]:
        word, name = word[1:], name[1:]
    while word and name and word[-1] == name[-1]:
        word, name = word[:-1], name[:-1]
    return max(len(word), len(name)) <= 1 or (len(word) == 2 and word == name[::-1])


def _check(options: Options, seen: dict[str, str], flags: dict[str, tuple[str, bool]]) -> None:
    for target, accepted in _CHOICES.items():
        value = getattr(options, target)
        if value and value not in accepted:
            from difflib import get_close_matches

            close = get_close_matches(value, accepted, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{seen[target]} must be one of {', '.join(accepted)}, not {quote(value)}{hint}")
    for one, other in _CONFLICTS:
        if one in flags and other in flags and flags[one][0] in seen and flags[other][0] in seen:
            raise UsageError(f"{one} and {other} contradict each other; use one of them")


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
