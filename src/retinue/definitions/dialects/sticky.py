"""The `sticky` dialect: agents that end with `subagent_finalize` and whose sessions can be continued. Pure.

A file may have an allow-list (`approved_tools`, `allowed_tools`) or a deny-list (`denied_tools`), not both; with
neither, an agent asks for its parent's tools.
"""

from retinue.core.definition import DeclaredTools, Definition, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.tool_table import FINALIZE
from retinue.definitions.document import choose_prompt, open_document, read_description, read_name
from retinue.definitions.fields import AgentFields
from retinue.definitions.tools_field import check_names, check_readonly, declare_tools, read_allowed

ALLOWING = ("approved_tools", "allowed_tools", "tools")
FIELDS = {
    name: name
    for name in (
        *("name", "description", "approved_tools", "allowed_tools"),
        # Not fields of this dialect, but accepted, since they only restrict the agent.
        *("tools", "readonly", "enabled", "max_turns", "output_schema", "verify"),
    )
} | {"denied_tools": "disallowed_tools"}
MEANINGLESS = dict.fromkeys(("disabled", "disable"), "write `enabled: false` to switch the agent off")


def parse(text: str, path: str, source: Source) -> tuple[Definition | None, list[Diagnostic]]:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    fields, problems = open_document(text, path, "lines", lambda block: AgentFields(block, path, FIELDS, MEANINGLESS))
    if fields is None:
        return None, problems
    name = read_name(fields, stem_counts=False)
    description = read_description(fields)
    tools = _read_tools(fields)
    readonly = bool(fields.read_switch("readonly", doubt=True, absent=False))
    enabled = fields.read_switch("enabled", doubt=False, absent=True)
    max_turns = fields.read_count("max_turns")
    schema, schema_file = fields.read_schema()
    verify = fields.read_commands("verify")
    if tools is None or name is None or fields.is_refused:
        return None, problems
    check_readonly(fields, tools, readonly=readonly, field="approved_tools")
    return Definition(
        name=name,
        dialect="sticky",
        source=source,
        path=path,
        description=description,
        prompt=choose_prompt(fields, name, description),
        enabled=bool(enabled) and not fields.is_disabled,
        readonly=readonly,
        tools=tools,
        max_turns=max_turns,
        completion="finalize",
        output_schema=schema,
        schema_file=schema_file,
        verify=verify,
        lines=fields.lines,
        fields=fields.list_reports(),
    ), problems


def _read_tools(fields: AgentFields) -> DeclaredTools | None:
    """The tools that the lists ask for; None if the lists contradict each other."""
    given = [field for field in ALLOWING if fields.has(field)]
    if given and fields.has("disallowed_tools"):
        text = f"{given[0]} and denied_tools are mutually exclusive: the agent is ambiguous and not loaded"
        fields.report(text, "disallowed_tools", None, "contradiction")
        return None
    if not given:
        denied = declare_tools(fields, allow="approved_tools")
        unreadable = denied.names is not None
        return denied if unreadable else DeclaredTools(inherits=True, denied=denied.denied)
    if len(given) > 1:
        text = f"{given[0]} and {given[1]} are both given; only tools in both lists are available"
        fields.report(text, given[1], None, "contradiction", "warning")
    lists = [read_allowed(fields, field) or () for field in given]
    words = tuple(word for word in lists[0] if all(word in other for other in lists[1:]))
    if "subagent" in words:
        text = f"{given[0]}: 'subagent' is never given to a subagent"
        fields.report(text, given[0], None, "unknown-tool", "warning")
    has_all = any(word.lower() in ("*", "all") for word in words)
    left_out = ("subagent", FINALIZE)
    plain = tuple(word for word in words if word not in left_out and word.lower() not in ("*", "all"))
    selectors = tuple(word for word in plain if word.startswith("ext:"))
    names = tuple(word for word in plain if not word.startswith("ext:"))
    check_names(fields, given[0], names)
    return DeclaredTools(names, has_all, selectors=selectors)
