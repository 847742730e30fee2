"""The `codingcode` dialect: agent profiles of CodingCode, with its own tool names. Pure.

`name` and `description` are required; without `tools` a profile asks for all builtin tools.
"""

from retinue.core.definition import Definition, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.tool import CODINGCODE
from retinue.definitions.document import open_document, read_description, read_name
from retinue.definitions.fields import AgentFields
from retinue.definitions.frontmatter import Scalar
from retinue.definitions.tools_field import check_readonly, declare_tools

DEFAULT_PROMPT = "You are a specialized agent."
FIELDS = {
    name: name
    for name in (
        *("name", "description", "systemPrompt", "tools", "mcpServers", "readonly", "model", "hooks", "disabled"),
        # Not CodingCode's fields, but accepted, since they only restrict the agent.
        *("disallowed_tools", "enabled", "output_schema", "verify"),
    )
} | {"maxSteps": "max_turns", "outputSchema": "output_schema"}


def parse(text: str, path: str, source: Source) -> tuple[Definition | None, list[Diagnostic]]:
    """Parse a profile; returns the definition, if it is usable, and all problems."""
    fields, problems = open_document(text, path, "lines", lambda block: AgentFields(block, path, FIELDS, {}))
    if fields is None:
        return None, problems
    name = read_name(fields, stem_counts=False)
    description = read_description(fields)
    if name and not description:
        fields.report("`description` is missing; the file is skipped", "description", 1, "description")
    readonly = bool(fields.read_switch("readonly", doubt=True, absent=False))
    tools = declare_tools(fields, aliases=CODINGCODE)
    check_readonly(fields, tools, readonly=readonly)
    servers = fields.read_words("mcpServers")
    if servers is None:
        fields.reject("mcpServers", "a list of server names", "none")
    model = fields.read_text("model")
    enabled = _read_enabled(fields)
    schema, schema_file = fields.read_schema()
    verify = fields.read_commands("verify")
    own_prompt = fields.read_text("systemPrompt")
    hooks = fields.read_objects("hooks")
    max_turns = fields.read_count("max_turns")
    if name is None or not description or fields.is_refused:
        return None, problems
    return Definition(
        name=name,
        dialect="codingcode",
        source=source,
        path=path,
        description=description,
        prompt=own_prompt or fields.body or _say_default(fields),
        enabled=enabled and not fields.is_disabled,
        readonly=readonly,
        tools=tools,
        mcp_servers=servers or (),
        hooks=hooks,
        model=model or None,
        max_turns=max_turns,
        output_schema=schema,
        schema_file=schema_file,
        verify=verify,
        lines=fields.lines,
        fields=fields.list_reports(),
    ), problems


def _say_default(fields: AgentFields) -> str:
    fields.report("the file has no instructions; a general sentence is used", "", 1, "empty-body", "warning")
    return DEFAULT_PROMPT


def _read_enabled(fields: AgentFields) -> bool:
    """Disabled by `disabled: true`, and by any value that is not clearly false."""
    enabled = fields.read_switch("enabled", doubt=False, absent=True)
    value = fields.get("disabled")
    if value is None or (
        isinstance(value, Scalar) and (value.is_null or value.text in ("false", "False", "FALSE", "0"))
    ):
        return bool(enabled)
    if not (isinstance(value, Scalar) and value.text in ("true", "True", "TRUE", "1")):
        fields.reject("disabled", "true or false", "the agent is disabled")
    return False
