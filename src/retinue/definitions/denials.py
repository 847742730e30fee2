"""Rules that other tools keep beside their agents: `permissions` of Claude Code, `permission` of OpenCode. Pure.

They only take tools away. A rule that cannot be expressed disables the agents that it is about.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.errors import quote
from retinue.core.strictjson import JsonError, parse_json
from retinue.definitions.dialects import claude, opencode
from retinue.definitions.document import fold_name
from retinue.definitions.foreign import WEB, WRITERS, drop_served, find_server, find_uses, split_pattern, translate

_READING = ("read", "grep", "find", "ls")
# Claude Code applies rules for these to all tools that read or edit files.
_WIDE = {"read": _READING, "edit": ("edit", "write"), "write": ("write",), "webfetch": WEB}


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
    fault: str = ""
    """Why no agent may run."""


def parse_claude(data: bytes, path: str) -> list[Denial]:
    """The rules of a `settings.json` of Claude Code that restrict."""
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


def _read_rule(path: str, field: str, rule: str) -> Denial:
    tool, use = split_pattern(rule)
    folded, shown = tool.lower(), f"{field}: {quote(rule, 80)}"
    tools = _WIDE.get(folded) or translate(tool, claude.TABLES, is_denial=True) or ()
    if folded in ("agent", "task") and use != "*":
        return Denial(path, shown, agent=use, some=tools)
    if folded == "skill":
        return Denial(path, shown, has_no_skills=True)
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


def apply_denials(definition: Definition, denials: Iterable[Denial]) -> Definition:
    """The agent without what the rules deny; disabled if a rule cannot be expressed."""
    faults: list[str] = []
    told = list(denials)
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
                f"{rule.path}: {rule.rule}: is about some uses of {listed}, which retinue cannot tell apart; "
                "deny the tool to the agent as a whole"
            )
    if not faults:
        return result
    texts = tuple(f"{text}; the agent is disabled" for text in faults)
    return replace(result, enabled=False, faults=(*definition.faults, *texts))
