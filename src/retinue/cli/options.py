"""Table of commands and flags, and the parser that reads it; errors suggest the closest flag.

The help (`cli/usage.py`) and shell completion (`cli/completion.py`) are made from the same table. Hand-written because
argparse takes twice as long at start-up and lacks pi's two-letter short flags. Must not import anything heavy.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from retinue.core.errors import UsageError, quote

_MODEL = "--model --provider --api-key --thinking"
EVERYWHERE = "--directory --approve --no-approve --offline --help"
"""Flags of every command."""

SECTIONS = {
    "output": "--print --mode --wait",
    "model": f"{_MODEL} --models --offline",
    "session": "--detach --continue --resume --session --session-id --session-dir --no-session --name",
    "tools and prompt": "--agent --tools --exclude-tools --no-tools --system-prompt --append-system-prompt "
    "--no-context-files --no-skills",
    "other": "--directory --approve --no-approve --help --version",
}
"""Flags without a command, by section of the help."""

COMMANDS: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "run": (
        "run.run_agent",
        f"--write --verify --json {_MODEL} --session-id",
        (("AGENT [TASK...]", "run one agent and print its answer; without TASK, read it from standard input"),),
    ),
    "agents": (
        "agents.run_agents",
        "--json --description --tools --readonly --model --thinking --prompt --user --project --yes --to",
        (
            ("", "list the agents of this folder and problems in their files"),
            ("show AGENT", "show an agent's file and why it has each tool or not"),
            ("new [NAME]", "create an agent file; in a terminal, ask for what is missing"),
            ("eject AGENT", "copy a builtin agent to a file that you can edit"),
            ("enable AGENT", "allow an agent to run again"),
            ("disable AGENT", "do not allow an agent to run"),
            ("delete AGENT", "delete an agent's file"),
            ("convert AGENT --to DIALECT", "write the agent's file for another tool, and report what is lost"),
        ),
    ),
    "land": (
        "land.run_land",
        "--all --onto --dry-run --no-verify --json --session-dir",
        (("[BRANCH...]", "merge branches of agents into the current one, each merge verified with landing.verify"),),
    ),
    "doctor": ("doctor.run_doctor", "--json", (("", "check the configuration"),)),
    "trust": (
        "trust.run_trust",
        "--yes --no --forget --mcp --hook --extension --file --command",
        (("[DIR]", "show or decide whether a folder's own configuration is used"),),
    ),
    "why": ("why.explain_right", "--json", (("AGENT TOOL", "explain why an agent has a tool or not"),)),
    "logs": (
        "logs.show_logs",
        "--json --limit --tool --run --search --fetch --convert",
        (("", "list the newest tool calls of this project"),),
    ),
    "activity": ("logs.show_activity", "--json", (("", "count the tool calls of this project per tool"),)),
    "export": (
        "export.run_export",
        "--output --session-dir",
        (("[SESSION]", "write a session with all its runs and a timeline as one HTML file"),),
    ),
    "rewind": (
        "rewind.run_rewind",
        "--to --files --conversation --list --undo --session-dir",
        (
            (
                "[SESSION]",
                "restore files and conversation as before a prompt; default: the last of the newest session",
            ),
        ),
    ),
    "undo": (
        "rewind.run_undo",
        "--ours --theirs --dry-run",
        (("RUN", "undo what one agent changed; RUN is its id or the start of its id"),),
    ),
    "serve": (
        "serve.run_serve",
        "--port --host --tls-cert --tls-key --model --provider --thinking --session-dir --continue",
        (("", "show sessions in a browser: start, watch and stop them, answer their questions"),),
    ),
    "attach": (
        "attach.run_attach",
        "--list --stop --json",
        (("[SESSION]", "open a session that runs in the background or in retinue serve"),),
    ),
    "mcp": (
        "line_server.run_mcp",
        f"--http --port --host {_MODEL} --no-session",
        (("", "serve the delegation tools to an MCP host, such as another coding agent"),),
    ),
    "acp": (
        "line_server.run_acp",
        f"{_MODEL} --no-session --session-dir",
        (("", "run as the agent of an editor, over the Agent Client Protocol"),),
    ),
    "worker": (
        "worker.run_worker",
        "--database --slots --total --drain",
        (("", "execute runs from a shared database until a signal arrives"),),
    ),
    "cluster": (
        "cluster.run_cluster",
        "--json --database --days --unfetched",
        (
            ("[status]", "show workers, queues and runs of the shared database"),
            ("fetch RUN", "save the changes of a finished run as a branch of this repository"),
            ("prune", "delete the data of old runs; needs --days"),
        ),
    ),
    "login": (
        "login.run_login",
        "--no-check",
        (
            (
                "[PROVIDER]",
                "check an API key and store it in auth.json; asks for the key, or reads it from a pipe",
            ),
            ("mcp:NAME", "sign in to an MCP server through the browser"),
        ),
    ),
    "logout": (
        "login.run_logout",
        "",
        (("[PROVIDER]", "remove the entry of a provider or of mcp:NAME from auth.json"),),
    ),
    "models": (
        "models.list_models",
        "--json --model --provider --refresh",
        (("", "list the available models and the default"),),
    ),
    "schedules": (
        "schedules.run_schedules",
        "--json",
        (("", "list the scheduled agents of this project"), ("cancel ID", "cancel a scheduled agent")),
    ),
    "sessions": ("sessions.list_sessions", "--json --all --session-dir", (("", "list the sessions of this folder"),)),
    "completion": (
        "completion.run_completion",
        "",
        (
            (
                "bash|zsh|fish [WORD...]",
                "print a completion script; with words, list the completions of the last one",
            ),
        ),
    ),
}
"""Commands by name: function in `retinue.cli`, flags, and the forms with their arguments and what each does.

In a form, lower-case words are typed as they are, `a|b` is a choice, `[A]` may be omitted, `A...` may be repeated;
AGENT is completed with the names of agents.
"""

FLAGS = {
    "--print": ("-p", "", "run the prompts, print the last answer and exit"),
    "--mode": (
        "",
        "text|json|rpc",
        "json: print every event as a line of JSON; rpc: read commands from standard input",
    ),
    "--wait": ("", "", "with -p, wait for the end of a provider's usage limit instead of exiting with status 75"),
    "--model": ("", "NAME", "provider/id, or part of a name; NAME:high also sets the thinking level"),
    "--provider": ("", "NAME", "use only models of this provider"),
    "--api-key": ("", "KEY", "use this key for this run only"),
    "--thinking": ("", "off|minimal|low|medium|high|xhigh|max", "how much the model thinks"),
    "--models": ("", "A,B", "models to start with and to cycle through: names or globs, each optionally with :LEVEL"),
    "--offline": ("", "", "do not search for local model servers"),
    "--detach": ("", "", "run the prompts in the background; retinue attach opens the session"),
    "--continue": ("-c", "", "continue the newest session of this folder"),
    "--resume": ("-r", "", "choose a session of this folder from a list; needs the terminal UI"),
    "--session": ("", "PATH|ID", "open this session; the start of an id is enough"),
    "--session-id": ("", "ID", "open the session with this id, or create it"),
    "--session-dir": ("", "DIR", "store sessions in this folder"),
    "--no-session": ("", "", "do not save the session"),
    "--name": ("-n", "NAME", "name the session"),
    "--agent": ("", "AGENT", "run the main agent with this agent file: its prompt, tools, model and limits"),
    "--tools": ("-t", "A,B", "use only these tools (read, bash, edit, write, grep, find, ls)"),
    "--exclude-tools": ("-xt", "A,B", "do not use these tools"),
    "--no-tools": ("-nt", "", "use no tools"),
    "--system-prompt": ("", "TEXT|FILE", "replace the built-in prompt"),
    "--append-system-prompt": ("", "TEXT|FILE", "append to the prompt; may be repeated"),
    "--no-context-files": ("-nc", "", "do not read AGENTS.md and similar files"),
    "--no-skills": ("-ns", "", "do not list skills"),
    "--directory": ("-C", "DIR", "work in DIR"),
    "--approve": ("-a", "", "trust this folder's own configuration for this run"),
    "--no-approve": ("-na", "", "ignore this folder's own configuration"),
    "--help": ("-h", "", "show this help; after a command, help for that command"),
    "--version": ("-v", "", "show the version"),
    "--json": ("", "", "print JSON"),
    "--write": ("", "", "let the agent use its tools that make changes"),
    "--verify": ("", "COMMAND", "succeed only if this shell command succeeds in its workspace; may be repeated"),
    "run --session-id": ("", "ID", "continue the agent's session with this id, or create it"),
    "--description": ("", "TEXT", "new: when to use the agent, in one sentence"),
    "agents --tools": ("-t", "A,B", "new: its tools (default: all; none if empty)"),
    "--readonly": ("", "", "new: it may not change files"),
    "agents --model": ("", "NAME", "new: its model (default: the caller's)"),
    "agents --thinking": ("", "off|minimal|low|medium|high|xhigh|max", "new: its thinking level"),
    "--prompt": ("", "TEXT", "new: its instructions; - reads standard input"),
    "--user": ("", "", "new, eject, disable, convert: use your own folder (default)"),
    "--project": ("", "", "new, eject, disable, convert: use the project's folder"),
    "--to": ("", "pi|claude|codex|opencode|cursor|copilot|gemini", "convert: the tool to write the agent for"),
    "agents --yes": ("", "", "delete: do not ask"),
    "--yes": ("", "", "trust it"),
    "--no": ("", "", "do not trust it"),
    "--forget": ("", "", "forget the decision"),
    "--mcp": ("", "NAME", "decide about this MCP server of the project"),
    "--hook": ("", "NAME", "decide about this hook of the project"),
    "--extension": ("", "PATH", "decide about this extension that an agent file names by its path"),
    "--file": ("", "PATH", "decide about this agent file of a folder that is not trusted"),
    "--command": (
        "",
        "KEY",
        "decide about this command of the project's subagents.json, such as verify, or AGENT/verify",
    ),
    "--limit": ("", "N", "list at most N calls (20)"),
    "--tool": ("", "NAME", "only calls of this tool"),
    "--run": ("", "ID", "only calls of this run"),
    "--search": ("", "", "only web searches"),
    "--fetch": ("", "", "only fetched pages"),
    "--convert": ("", "", "only converted documents"),
    "--output": ("-o", "FILE", "write to FILE"),
    "--http": ("", "", "serve over HTTP on this machine instead, to hosts that have the printed token"),
    "mcp --host": ("", "NAME", "with --http: the name or address to listen on; needs your own RETINUE_MCP_TOKEN"),
    "--port": ("", "N", "the port on this machine (default: any free port)"),
    "--host": ("", "NAME", "the name or address to listen on (default: 127.0.0.1); any other than loopback needs TLS"),
    "--tls-cert": ("", "FILE", "the server's certificate, as PEM"),
    "--tls-key": ("", "FILE", "the key of the certificate, as PEM"),
    "rewind --to": ("", "N", "go back to before the N-th prompt (default: the last)"),
    "--files": ("", "", "only the files"),
    "--conversation": ("", "", "only the conversation"),
    "rewind --list": ("", "", "list the prompts"),
    "--undo": ("", "", "take back the last rewind or undo of this folder"),
    "--ours": ("", "", "where others changed the same lines later, keep what is there now"),
    "--theirs": ("", "", "where others changed the same lines later, restore what was there before the run"),
    "undo --dry-run": ("", "", "show what would change, but change nothing"),
    "--list": ("", "", "list the sessions in the background"),
    "--stop": ("", "", "close the session instead; it can be resumed"),
    "--database": ("", "URL", "the shared Postgres (default: RETINUE_DATABASE, else subagents.json)"),
    "--slots": ("", "N", "concurrent runs in this process, at each depth of delegation (20)"),
    "--total": ("", "N", "concurrent runs on all workers together, at each depth; 0 removes an earlier limit"),
    "--drain": ("", "SECONDS", "how long active runs may take to finish after a stop signal (30)"),
    "--days": ("", "N", "prune: keep runs that finished in the last N days"),
    "--unfetched": ("", "", "prune: also runs whose result no front end has fetched"),
    "--no-check": ("", "", "store the key without checking it with the provider"),
    "--refresh": ("", "", "first ask the providers for their models"),
    "land --all": ("", "", "all branches of agents that have not landed"),
    "--onto": ("", "BRANCH", "land on this branch instead of the one that is checked out"),
    "--dry-run": ("", "", "merge and check, but change nothing"),
    "--no-verify": ("", "", "land what merges cleanly, without a check; no author is asked"),
    "--all": ("", "", "include those of other folders and of subagents"),
}
"""Flags by name: short name, its value (empty: takes none; lower case: one of these) and what it does.

A row such as `agents --tools` is for one command and comes before the general row.
"""


def find_flags(command: str) -> dict[str, tuple[str, str, str]]:
    """Return the rows of FLAGS for a command, or for no command if the name is empty."""
    listed = f"{COMMANDS[command][1]} {EVERYWHERE}" if command else " ".join(SECTIONS.values())
    return {name: FLAGS.get(f"{command} {name}") or FLAGS[name] for name in listed.split()}


def list_choices(value: str) -> list[str]:
    """Return the values that a lower-case placeholder such as `text|json` lists; none for others, such as NAME."""
    return value.split("|") if value.islower() else []


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
        self.verify: list[str] = []
        self.tools: str | None = None
        self.system_prompt: str | None = None
        self.description: str | None = None
        self.prompt: str | None = None
        self.help = self.version = self.json = self.print = False
        self.approve = self.no_approve = self.offline = False
        self.model = self.provider = self.api_key = self.thinking = self.models = self.agent = ""
        self.continue_ = self.resume = self.no_session = False
        self.session = self.session_id = self.session_dir = self.name = ""
        self.no_tools = self.no_context_files = self.no_skills = False
        self.exclude_tools = self.directory = ""
        self.no_check = self.wait = self.dry_run = self.no_verify = False
        self.files_only = self.conversation = self.undo = self.ours = self.theirs = False
        self.refresh = self.all = self.write = self.readonly = False
        self.user = self.project = self.yes = self.no = self.forget = False
        self.mcp = self.hook = self.extension = self.file = self.setting = self.to = ""
        self.output = self.port = self.host = self.tls_cert = self.tls_key = ""
        self.detach = self.list = self.stop = self.http = False
        self.search = self.fetch = self.convert = self.unfetched = False
        self.limit = self.tool = self.run = self.onto = ""
        self.database = self.slots = self.total = self.drain = self.days = ""


_FIELDS = {"--continue": "continue_", "--command": "setting", "--files": "files_only"}
"""Flags whose field has another name."""


def _read_flags(rows: Mapping[str, tuple[str, str, str]]) -> dict[str, tuple[str, str]]:
    """Return the names and short names of flags, each with its field of Options and its value."""
    flags = {}
    for name, (short, value, _) in rows.items():
        field = _FIELDS.get(name) or name[2:].replace("-", "_")
        flags[name] = field, value
        if short:
            flags[short] = field, value
    return flags


_EMPTY_IS_FINE = ("tools", "system_prompt", "description", "prompt")
_CONFLICTS = (
    ("--approve", "--no-approve"),
    ("--tools", "--no-tools"),
    ("--continue", "--resume"),
    ("--continue", "--session"),
    ("--continue", "--session-id"),
    ("--continue", "--no-session"),
    ("--session", "--session-id"),
    ("--session", "--no-session"),
    ("--resume", "--session"),
    ("--resume", "--session-id"),
    ("--resume", "--no-session"),
    ("--detach", "--resume"),
    ("--detach", "--print"),
    ("--detach", "--mode"),
    ("--detach", "--no-session"),
    ("--user", "--project"),
    ("--ours", "--theirs"),
    ("--yes", "--no"),
    ("--yes", "--forget"),
    ("--no", "--forget"),
)


def parse_arguments(arguments: Sequence[str]) -> Options:
    """Parse a command line. Raises UsageError with one sentence for the first mistake."""
    rest, only_prompts = list(arguments), False
    place = _find_command(arguments)
    options = Options(command="" if place is None else rest.pop(place))
    flags = _read_flags(find_flags(options.command))
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
    if options.prompts and not (options.print or options.files or only_prompts):
        from retinue.cli.suggestion import check_words

        check_words(options.prompts, is_answer=bool(options.continue_ or options.session or options.session_id))
    return options


def _find_command(arguments: Sequence[str]) -> int | None:
    """The index of the command: the first word, which only flags common to all commands may precede."""
    index, common = 0, _read_flags({name: FLAGS[name] for name in EVERYWHERE.split()})
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
        forms = [form.split() for form, _ in COMMANDS[options.command][2]]
        is_full = len(options.words) >= max(map(len, forms))
        if is_full and not any(form and "..." in form[-1] for form in forms):
            name = options.command
            raise UsageError(f"retinue {name} takes no argument {quote(word)}; see retinue {name} --help")
        options.words.append(word)
    elif word.startswith("@") and len(word) > 1 and not plain:
        options.files.append(word[1:])
    else:
        options.prompts.append(word)


def _take_flag(
    options: Options, argument: str, rest: list[str], flags: dict[str, tuple[str, str]], seen: dict[str, str]
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


def _describe_unknown(name: str, command: str, flags: dict[str, tuple[str, str]]) -> str:
    owner = next((known for known in COMMANDS if name in _read_flags(find_flags(known))), "")
    if not command and owner:
        return f"{name} needs a command: retinue {owner} {name}"
    from difflib import get_close_matches

    # Compare without the dashes, which make short flags look similar.
    words, bare = {flag.lstrip("-"): flag for flag in flags}, name.lstrip("-")
    # Exchanged letters first: `--modle` is nearer to --model than to --mode.
    close = [word for word in words if sorted(word) == sorted(bare)] or get_close_matches(bare, words, 1, 0.6)
    place = f"retinue {command}".rstrip()
    hint = f"; did you mean {words[close[0]]}?" if close else f"; see {place} --help"
    return f"unknown option {quote(name)}{hint}"


def _check(options: Options, seen: dict[str, str], flags: dict[str, tuple[str, str]]) -> None:
    for target, name in seen.items():
        accepted, value = list_choices(flags[name][1]), getattr(options, target)
        if accepted and value not in accepted:
            from difflib import get_close_matches

            close = get_close_matches(value, accepted, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{name} must be one of {', '.join(accepted)}, not {quote(value)}{hint}")
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
