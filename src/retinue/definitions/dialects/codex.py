"""The `codex` dialect: custom agents of Codex, one TOML file each in `.codex/agents`. Pure."""

import re
import tomllib

from retinue.core.definition import Source
from retinue.core.diagnostics import Diagnostic
from retinue.definitions.document import find_hidden
from retinue.definitions.fields import show_place
from retinue.definitions.foreign import WEB, AgentDraft, Parsed, build_agent
from retinue.definitions.foreign_fields import ForeignFields, ForeignTables, to_block
from retinue.definitions.frontmatter import Items, Scalar, YamlTable

FIELDS = {
    "name": "name",
    "description": "description",
    "model": "model",
    "model_reasoning_effort": "thinking",
    "sandbox_mode": "sandbox_mode",
    "sandbox_workspace_write": "sandbox_workspace_write",
    "approval_policy": "approval_policy",
    "web_search": "web_search",
    "features": "features",
    "skills": "skill_settings",
    "profile": "profile",
    "developer_instructions": "instructions",
}
IGNORED = {
    "nickname_candidates": "names for display in Codex",
    "mcp_servers": "servers are configured in mcp.json; the agent gets no tools of servers",
    "model_provider": "write `model: provider/id`",
    "model_verbosity": "a setting of Codex's models",
    "model_reasoning_summary": "a setting of Codex's models",
    "service_tier": "a setting of Codex's models",
    "personality": "a setting of Codex",
}
SANDBOX = ("read-only", "workspace-write", "danger-full-access")
POLICIES = ("never", "on-request", "on-failure", "untrusted")
TABLES = ForeignTables("codex", FIELDS, IGNORED, {})


def parse(text: str, path: str, source: Source) -> Parsed:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    try:
        data = tomllib.loads(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return None, [Diagnostic(f"{show_place(path, None)}: is not TOML: {error}", path, code="toml")]
    body = data.get("developer_instructions")
    lines = {key: _find_line(text, key) for key in data}
    block = to_block(data, body if isinstance(body, str) else "", lines)
    fields = ForeignFields(block, path, TABLES)
    find_hidden(fields, block)
    if not isinstance(body, str):
        problem = "`developer_instructions` is missing; the file is skipped"
        fields.report(problem, "", 1, "no-frontmatter")
        return None, fields.problems
    return build_agent(fields, source, _read_more)


def _find_line(text: str, key: str) -> int:
    found = re.search(rf"^\s*(\[+\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def _read_more(draft: AgentDraft) -> None:
    fields = draft.fields
    mode = fields.read_mode("sandbox_mode", SANDBOX)
    if mode == "read-only":
        draft.readonly = True
    elif mode == "danger-full-access":
        fields.approximate("sandbox_mode", "an agent file cannot add rights: commands write only in the workspace")
    elif mode:
        fields.approximate(
            "sandbox_mode", "commands write in the workspace; the setting sandbox.network decides about the network"
        )
    policy = fields.read_mode("approval_policy", POLICIES)
    if policy == "untrusted":
        draft.readonly = True
        fields.approximate("approval_policy", "read-only: the rest would need an approval in Codex")
    elif policy:
        fields.approximate("approval_policy", "the setting `approvals` decides which tool calls need your approval")
    search = fields.read_mode("web_search", ("disabled", "cached", "live"))
    if search == "disabled":
        draft.deny("web_search", *WEB)
    elif search:
        draft.give("web_search")
        fields.approximate("web_search", "if web tools are enabled in the settings")
    if fields.has("profile"):
        fields.block("profile", "a profile of Codex may restrict the agent, and retinue does not read profiles")
    _read_objects(draft)


def _read_objects(draft: AgentDraft) -> None:
    fields = draft.fields
    limits = fields.get("sandbox_workspace_write")
    if isinstance(limits, YamlTable) and not set(limits.values) - {"network_access", "writable_roots"}:
        access = limits.values.get("network_access")
        if isinstance(access, Scalar) and access.text != "true" and not draft.readonly:
            fields.block("sandbox_workspace_write", "network_access cannot be switched off for one agent")
        else:
            fields.approximate("sandbox_workspace_write", "the settings sandbox.network and sandbox.writable decide")
    elif limits is not None:
        fields.block_value("sandbox_workspace_write", "network_access and writable_roots")
    features = fields.get("features")
    values = features.values.values() if isinstance(features, YamlTable) else (features,)
    if any(not (isinstance(value, Scalar) and value.text == "true") for value in values if value is not None):
        fields.block("features", "features that are switched off cannot be expressed")
    elif features is not None:
        fields.drop("features", "features of Codex")
    skills = fields.get("skill_settings")
    if skills is not None:
        listed = skills.values.get("config") if isinstance(skills, YamlTable) else None
        entries = listed.values if isinstance(listed, Items) else (skills,)
        if all(isinstance(entry, YamlTable) and _is_on(entry) for entry in entries):
            fields.drop("skill_settings", "the agent finds the skills of the skill folders")
        else:
            draft.values["skills"] = False
            fields.approximate("skill_settings", "some are switched off, so the agent gets none")


def _is_on(entry: YamlTable) -> bool:
    value = entry.values.get("enabled")
    return value is None or (isinstance(value, Scalar) and value.text == "true")
