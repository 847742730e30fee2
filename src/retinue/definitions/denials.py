"""Rules that other tools keep beside their agents: deny rules of Claude Code, OpenCode, Cursor and Gemini CLI, and the
sandbox of Codex. Pure.

They only take tools away. A rule that cannot be expressed disables the agents that it is about.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import Definition, Dialect
from retinue.core.errors import quote
from retinue.core.strictjson import JsonError, parse_json
from retinue.definitions.dialects import claude, codex, gemini, opencode
from retinue.definitions.document import fold_name
from retinue.definitions.foreign import WEB, WRITERS, drop_served, find_server, find_uses, split_pattern, translate
from retinue.definitions.foreign_fields import ForeignTables

_READING = ("read", "grep", "find", "ls")
# Claude Code applies rules for these to all tools that read or edit files.
_WIDE = {"read": _READING, "edit": ("edit", "write"), "write": ("write",), "webfetch": WEB, "shell": ("bash",)}


class Denial(Struct, frozen=True):
    """One rule, or one file that cannot be read."""

    path: str
    rule: str
    """The field and value in the file."""
    tools: tuple[str, ...] = ()
    """Our tools that it takes away."""
    some: tuple[str, ...] = ()
    """Our tools that it is about in part: an agent that has one cannot run."""
    agent: str = ""
    """The agent that must not be used."""
    server: str = ""
    """The MCP server that must not be used; `*` for all."""
    is_readonly: bool = False
    has_no_skills: bool = False
    override: Definition | None = None
    """What the file says about one agent."""
    fault: str = ""
    """Why no agent may run."""


def parse_rules(data: bytes, path: str, dialect: Dialect) -> list[Denial]:
    """The rules of a file of this tool that restrict."""
    match dialect:
        case "opencode":
            return parse_opencode(data, path)
        case "gemini":
            return parse_gemini(data, path)
        case "codex":
            return parse_codex(data, path)
    return parse_claude(data, path)


def parse_claude(data: bytes, path: str) -> list[Denial]:
    """The rules of a `settings.json` of Claude Code that restrict, or those of Cursor, which have the same form."""
    content, fault = _parse(data, path)
    if fault:
        return [fault]
    permissions = content.get("permissions")
    if permissions is None:
        return []
    if not isinstance(permissions, dict):
        return [Denial(path, "permissions", fault="expected an object")]
    found: list[Denial] = []
    for kind in ("deny", "ask"):
        rules = permissions.get(kind, [])
        if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
            found.append(Denial(path, f"permissions.{kind}", fault="expected a list of rules"))
            continue
        found += [_read_rule(path, f"permissions.{kind}", rule.strip()) for rule in rules]
    mode = permissions.get("defaultMode")
    if mode in ("plan", "dontAsk"):
        found.append(Denial(path, f"permissions.defaultMode: {mode}", is_readonly=True))
    elif mode is not None and mode not in claude.MODES:
        found.append(Denial(path, "permissions.defaultMode", fault=f"unknown mode {quote(str(mode), 40)}"))
    return found


def _read_rule(path: str, field: str, rule: str, tables: ForeignTables = claude.TABLES) -> Denial:
    tool, use = split_pattern(rule)
    folded, shown = tool.lower(), f"{field}: {quote(rule, 80)}"
    wide = _WIDE if tables is claude.TABLES else {}
    tools = wide.get(folded) or translate(tool, tables, is_denial=True) or ()
    if folded in ("agent", "task") and use != "*":
        return Denial(path, shown, agent=use, some=tools)
    if folded == "skill":
        return Denial(path, shown, has_no_skills=True)
    if folded == "mcp":
        return Denial(path, shown, server=use.partition(":")[0])
    if use != "*":
        # A command can read and change the same files.
        more = ("bash",) if folded in ("read", "edit", "write") else ()
        return Denial(path, shown, some=(*tools, *(WRITERS if more and folded != "read" else ()), *more))
    if tool == "*":
        return Denial(path, shown, tools=("*",), server="*")
    if "*" in tool and not tool.startswith("mcp__"):
        return Denial(path, shown, fault="tool names with a wildcard cannot be expressed")
    served = find_server(tool)
    if served is not None:
        return Denial(
            path, shown, tools=(tool, f"{served[0]}:{served[1]}"), server=served[0] if "*" in served[1] else ""
        )
    return Denial(path, shown, tools=tools or (tool,))


def parse_gemini(data: bytes, path: str) -> list[Denial]:
    """The tools that a `settings.json` of Gemini CLI excludes or does not list."""
    content, fault = _parse(data, path)
    if fault:
        return [fault]
    tools = content.get("tools", {})
    sections = {"tools.": tools if isinstance(tools, dict) else {"exclude": tools}, "": content}
    found: list[Denial] = []
    for prefix, section in sections.items():
        names = ("exclude", "core") if prefix else ("excludeTools", "coreTools")
        for field, name in zip(("exclude", "core"), names, strict=True):
            words = section.get(name)
            shown = f"{prefix}{name}"
            if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
                found.append(Denial(path, shown, fault="expected a list of tools"))
            elif field == "exclude":
                found += [_read_rule(path, shown, word.strip(), gemini.TABLES) for word in words or ()]
            elif words is not None:
                used = [
                    (split_pattern(word.strip()), translate(split_pattern(word.strip())[0], gemini.TABLES))
                    for word in words
                ]
                kept = {tool for _, tools in used for tool in tools or ()}
                found.append(
                    Denial(path, shown, tuple({tool for tools in gemini.TOOLS.values() for tool in tools} - kept))
                )
                found += [Denial(path, shown, some=tools or ()) for (_, use), tools in used if use != "*"]
    return found


def parse_codex(data: bytes, path: str) -> list[Denial]:
    """What a `config.toml` of Codex says about the rights of all agents."""
    try:
        content = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        return [Denial(path, "the file", fault=f"cannot be parsed ({error})")]
    found: list[Denial] = []
    for field, known, strict in (
        ("sandbox_mode", codex.SANDBOX, codex.SANDBOX[0]),
        ("approval_policy", codex.POLICIES, codex.POLICIES[-1]),
    ):
        value = content.get(field)
        if value == strict:
            found.append(Denial(path, f"{field}: {strict}", is_readonly=True))
        elif value is not None and value not in known:
            found.append(Denial(path, field, fault=f"found {quote(value, 40)}; expected one of {', '.join(known)}"))
    if content.get("web_search") == "disabled":
        found.append(Denial(path, "web_search: disabled", ("web_search", *WEB)))
    return found


def parse_opencode(data: bytes, path: str) -> list[Denial]:
    """The permissions of an `opencode.json` that restrict."""
    content, fault = _parse(data, path)
    if fault:
        return [fault]
    found: list[Denial] = []
    for field in ("permission", "permissions", "tools"):
        if field not in content:
            continue
        table = opencode.SWITCHES if field == "tools" else opencode.PERMISSIONS
        plain = content[field]
        is_old = field == "tools" and isinstance(plain, dict)
        rules = opencode.to_switches(plain) if is_old else opencode.to_rules(plain)
        if rules is None:
            found.append(Denial(path, field, fault="expected an object or a list of rules"))
            continue
        found += _judge_opencode(path, field, rules, table)
    for field in opencode.AGENTS:
        entries = content.get(field)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            shown, agent = f"{field}.{name}", name.rpartition("/")[2]
            about = opencode.parse_limits(path, agent, entry) if isinstance(entry, dict) else None
            found.append(Denial(path, shown, agent=agent if about is None else "", override=about))
    return found


def _judge_opencode(
    path: str, field: str, rules: Iterable[opencode.Rule], table: Mapping[str, tuple[str, ...]]
) -> Iterable[Denial]:
    for permission, verdict, detail in opencode.judge(rules, table):
        shown = f"{field}.{permission}"
        if verdict == "unknown":
            yield Denial(path, shown, fault=f"found {detail}; expected allow, ask or deny")
        elif verdict == "mixed":
            yield Denial(path, f"{shown} ({detail})", some=table.get(permission, ()))
        elif verdict != "allow" and permission == "external_directory":
            yield Denial(path, shown, fault="reading outside the project cannot be denied to one agent")
        elif verdict != "allow":
            yield Denial(path, shown, table.get(permission, (permission,)), has_no_skills=permission == "skill")


def _parse(data: bytes, path: str) -> tuple[dict[str, Any], Denial | None]:
    try:
        return parse_json(data, where=path, comments=True), None
    except JsonError as error:
        return {}, Denial(path, "the file", fault=f"cannot be parsed ({str(error).splitlines()[0]})")


def apply_denials(definition: Definition, denials: Collection[Denial]) -> Definition:
    """The agent without what the rules deny; disabled if a rule cannot be expressed."""
    faults: list[str] = []
    told = [rule for rule in denials if rule.override is None]
    for item in (rule.override for rule in denials if rule.override is not None):
        if item.path != definition.path and fold_name(item.name) == fold_name(definition.name):
            definition = _apply_override(definition, item)
    tools = definition.tools
    denied = (*tools.denied, *(tool for rule in told for tool in rule.tools))
    servers = {rule.server for rule in told if rule.server}
    kept = tuple(name for name in definition.mcp_servers if not {name, "*"} & servers)
    selectors = () if "*" in servers else tools.selectors
    names = tools.names
    if names is not None and servers:
        names = tuple(drop_served(names, servers))
    result = replace(
        definition,
        readonly=definition.readonly or any(rule.is_readonly for rule in told),
        tools=replace(tools, names=names, denied=tuple(dict.fromkeys(denied)), selectors=selectors),
        mcp_servers=kept,
        skills=False if any(rule.has_no_skills for rule in told) else definition.skills,
    )
    for rule in told:
        if rule.fault:
            faults.append(f"{rule.path}: {rule.rule}: {rule.fault}")
        elif rule.agent and fold_name(rule.agent) == fold_name(definition.name):
            faults.append(f"{rule.path}: {rule.rule}: denies this agent")
        elif uses := find_uses(result, rule.some):
            listed = ", ".join(sorted(uses))
            faults.append(
                f"{rule.path}: {rule.rule}: restricts only some uses of {listed}, which retinue cannot tell apart; "
                "deny the tool to the agent as a whole"
            )
    if not faults:
        return result
    texts = tuple(f"{text}; the agent is disabled" for text in faults)
    return replace(result, enabled=False, faults=(*definition.faults, *texts))


def _apply_override(definition: Definition, item: Definition) -> Definition:
    """The agent with the limits that another file sets for it."""
    turns = [limit for limit in (definition.max_turns, item.max_turns) if limit]
    return replace(
        definition,
        enabled=definition.enabled and item.enabled,
        tools=replace(definition.tools, denied=tuple(dict.fromkeys((*definition.tools.denied, *item.tools.denied)))),
        skills=definition.skills if item.skills else False,
        max_turns=min(turns, default=definition.max_turns),
        faults=(*definition.faults, *item.faults),
    )
