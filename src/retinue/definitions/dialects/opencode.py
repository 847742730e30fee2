"""The `opencode` dialect: agents of OpenCode, in `.opencode/agents` and in `opencode.json`. Pure."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from retinue.core.definition import Definition, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.core.strictjson import JsonError, parse_json
from retinue.definitions.fields import find_close, to_plain
from retinue.definitions.foreign import DELEGATION, WEB, AgentDraft, Parsed, build_agent, parse_markdown
from retinue.definitions.foreign_fields import ForeignFields, ForeignTables, to_block
from retinue.definitions.frontmatter import Scalar

FIELDS = {
    "name": "name",
    "description": "description",
    "mode": "mode",
    "model": "model",
    "steps": "max_turns",
    "maxSteps": "max_turns",
    "disable": "disabled",
    "disabled": "disabled",
    "tools": "tool_switches",
    "permission": "permission",
    "permissions": "permissions",
    "reasoningEffort": "thinking",
    "variant": "thinking",
    "color": "color",
    "prompt": "instructions",
    "system": "instructions",
}
IGNORED = {
    **dict.fromkeys(("temperature", "top_p"), "models choose their own"),
    "hidden": "it hides the agent in a menu of OpenCode only",
    "options": "options of OpenCode's providers",
    "textVerbosity": "an option of OpenCode's providers",
    "maxTokens": "an option of OpenCode's providers",
}
PERMISSIONS: dict[str, tuple[str, ...]] = {
    "read": ("read",),
    "edit": ("edit", "write"),
    "glob": ("find",),
    "grep": ("grep",),
    "list": ("ls",),
    "bash": ("bash",),
    "task": DELEGATION,
    "todowrite": ("todo_write",),
    "webfetch": WEB,
    "websearch": ("web_search",),
    "lsp": ("lsp",),
    "skill": (),
    "question": ("ask_parent",),
    "doom_loop": (),
    "external_directory": (),
}
"""A permission of OpenCode → our tools."""
SWITCHES = {**PERMISSIONS, "edit": ("edit",), "write": ("write",), "patch": (), "multiedit": ()}
"""A tool of OpenCode → ours, for the older field `tools`."""
EDITORS = ("write", "edit", "patch", "apply_patch", "multiedit")
SAME = {"shell": "bash", "subagent": "task", "todoread": "todowrite", "codesearch": "websearch"}
AGENTS = ("agent", "agents", "mode")
"""Fields of `opencode.json` with agents."""
EFFECTS = ("allow", "ask", "deny")
BUILTIN = frozenset(("build", "plan", "general", "explore", "compaction", "title", "summary"))
TABLES = ForeignTables("opencode", FIELDS, IGNORED, {})
Rule = tuple[str, str, object]
"""Permission, resource and effect; the first two may have wildcards."""


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    return parse_markdown(text, path, source, TABLES, _read_more, has_stem=True)


def parse_config(data: bytes, path: str, source: Source) -> list[Parsed]:
    """Parse the agents of an `opencode.json`."""
    try:
        content = parse_json(data, where=path, comments=True)
    except JsonError as error:
        return [(None, [Diagnostic(str(error).splitlines()[0], path, code="json")])]
    found: list[Parsed] = []
    for key in AGENTS:
        agents = content.get(key)
        for name, entry in agents.items() if isinstance(agents, dict) else ():
            if isinstance(entry, dict) and not _is_override(name, entry):
                found.append(_parse_entry(data, path, source, name, entry))
    return found


def _is_override(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether an entry only changes one of OpenCode's own agents."""
    return name in BUILTIN and not entry.get("prompt") and not entry.get("system")


def _parse_entry(data: bytes, path: str, source: Source, name: str, entry: Mapping[str, Any]) -> Parsed:
    body = next((value for key in ("prompt", "system") if isinstance(value := entry.get(key), str)), "")
    at = data.find(f'"{name}"'.encode())
    line = data.count(b"\n", 0, max(at, 0)) + 1
    fields = ForeignFields(to_block(entry, body, dict.fromkeys(entry, line)), path, TABLES)
    if re.search(r"\{file:[^}]*\}", body):
        text = f"agent {quote(name)}: its prompt is in another file, which is not read; put it into .opencode/agents"
        fields.report(text, "instructions", line, "empty-body")
        return None, fields.problems
    return build_agent(fields, source, _read_more, stem=name.rpartition("/")[2])


def parse_limits(path: str, name: str, entry: Mapping[str, Any]) -> Definition | None:
    """The limits that an entry sets for the agent of another file; None if no agent can have this name."""
    limits = {key: value for key, value in entry.items() if FIELDS.get(key) not in ("instructions", "name")}
    fields = ForeignFields(to_block(limits, "-", dict.fromkeys(limits, 1)), path, TABLES)
    return build_agent(fields, "user", _read_more, stem=name)[0]


def _read_more(draft: AgentDraft) -> None:
    fields = draft.fields
    mode = fields.get("mode")
    if isinstance(mode, Scalar) and mode.text == "primary":
        fields.approximate("mode", "other agents can start it, too")
    if fields.has("tool_switches"):
        rules = _list_switches(fields)
        apply_permissions(draft, "tool_switches", rules, SWITCHES)
    if fields.has("permission"):
        plain = to_plain(fields.get("permission") or Scalar("", 1))
        apply_permissions(draft, "permission", to_rules(plain))
    if fields.has("permissions"):
        plain = to_plain(fields.get("permissions") or Scalar("", 1))
        apply_permissions(draft, "permissions", to_rules(plain))


def _list_switches(fields: ForeignFields) -> list[Rule] | None:
    plain = to_plain(fields.get("tool_switches") or Scalar("", 1))
    if isinstance(plain, list) and all(isinstance(word, str) for word in plain):
        return [("*", "*", "deny"), *((word.lower(), "*", "allow") for word in plain)]
    if not isinstance(plain, dict):
        return None
    return to_switches(plain)


def to_switches(plain: Mapping[str, Any]) -> list[Rule]:
    """The rules that the older switches stand for. Switching off one tool that edits denies editing, as in OpenCode."""
    rules: list[Rule] = [
        (key, "*", {True: "allow", False: "deny"}.get(value) if isinstance(value, bool) else value)
        for key, value in plain.items()
    ]
    is_off = any(plain.get(key) is False for key in EDITORS)
    return [*rules, *((key, "*", "deny") for key in ("edit", "write") if is_off)]


def to_rules(plain: Any) -> list[Rule] | None:
    """The rules of `permission` (a word or an object) or `permissions` (a list), in order; None if it is neither."""
    if isinstance(plain, str):
        return [("*", "*", plain)]
    if isinstance(plain, dict):
        return [
            (key, resource, effect)
            for key, value in plain.items()
            for resource, effect in (value.items() if isinstance(value, dict) else (("*", value),))
        ]
    if not isinstance(plain, list) or not all(isinstance(item, dict) for item in plain):
        return None
    return [(str(item.get("action")), str(item.get("resource")), item.get("effect")) for item in plain]


def apply_permissions(
    draft: AgentDraft, field: str, rules: list[Rule] | None, tools: Mapping[str, tuple[str, ...]] = PERMISSIONS
) -> None:
    """Deny what the rules deny or want a person to be asked about."""
    fields = draft.fields
    if rules is None:
        return fields.block_value(field, "an object or a list of rules")
    for permission, verdict, detail in judge(rules, tools):
        if verdict == "unknown":
            fields.block(field, f"{permission}: found {detail}; expected allow, ask or deny")
        elif verdict == "mixed":
            draft.patterns.append((field, f"{permission}: {detail}", tools[permission]))
        elif verdict == "allow":
            if permission in ("webfetch", "websearch"):
                draft.give(tools[permission][0])
        elif permission == "external_directory":
            fields.block(field, "external_directory: reading outside the project cannot be denied to one agent")
        else:
            meant = None if permission in tools else find_close(permission.lower(), tools, 0.8)
            draft.deny(*tools.get(permission, (permission,)), *(tools[meant] if meant else ()))
            if meant:
                fields.approximate(field, f"{quote(permission, 60)}: taken as {meant}")
            if permission == "skill":
                draft.values["skills"] = False
            if verdict == "ask":
                fields.approximate(field, f"{permission}: nobody is asked here, so it is denied")


def judge(rules: Iterable[Rule], tools: Mapping[str, tuple[str, ...]] = PERMISSIONS) -> list[tuple[str, str, str]]:
    """For each permission that the rules mention: allow, ask, deny, mixed or unknown, and a detail.

    The last matching rule counts, as in OpenCode; but a rule that names the permission itself is never weakened by a
    wildcard.
    """
    given = [(SAME.get(key, key), resource, effect) for key, resource, effect in rules]
    named = [key for key, _, _ in given if key not in tools and "*" not in key and "?" not in key]
    found: list[tuple[str, str, str]] = []
    for permission in dict.fromkeys((*tools, *named)):
        own = [(resource, effect, key == permission) for key, resource, effect in given if _is_match(permission, key)]
        is_named = any(key == permission for key, _, _ in given)
        # `*` is about tools; what an agent may read outside the project must be named.
        if not own or (permission == "external_directory" and not is_named):
            continue
        odd = next((effect for _, effect, _ in own if effect not in EFFECTS), None)
        if odd is not None or any(effect not in EFFECTS for _, effect, _ in own):
            found.append((permission, "unknown", quote(str(odd), 40)))
            continue
        whole = [(str(effect), is_exact) for resource, effect, is_exact in own if resource == "*"]
        some = {str(effect) != "allow" for resource, effect, _ in own if resource != "*"}
        verdict = whole[-1][0] if whole else "allow"
        exact = [effect for effect, is_exact in whole if is_exact]
        if exact and EFFECTS.index(exact[-1]) > EFFECTS.index(verdict):
            verdict = exact[-1]
        if some and some != {verdict != "allow"}:
            found.append((permission, "mixed", "rules about some resources"))
        elif exact or verdict != "allow":
            found.append((permission, verdict, ""))
    return found


def _is_match(permission: str, key: str) -> bool:
    return fnmatchcase(permission, key.replace("[", "[[]"))
