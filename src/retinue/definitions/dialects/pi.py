"""The `pi` dialect: agent files of pi, its subagent extensions and devkit-pi. Pure.

The name is `name` or the file's stem; without `tools` an agent asks for all builtin tools.
"""

from typing import Any, get_args

from retinue.core.definition import ContextMode, Definition, Runner, Source
from retinue.core.diagnostics import Diagnostic
from retinue.core.errors import quote
from retinue.definitions.document import choose_prompt, open_document, read_description, read_name
from retinue.definitions.fields import AgentFields, find_close
from retinue.definitions.frontmatter import Scalar
from retinue.definitions.tools_field import check_readonly, declare_tools

THINKING = ("off", "minimal", "low", "medium", "high", "xhigh", "max")
FIELDS = {
    name: name
    for name in (
        *("name", "description", "display_name", "color", "enabled", "readonly", "tools", "disallowed_tools"),
        *("extensions", "exclude_extensions", "skills", "memory", "model", "thinking", "max_turns", "prompt_mode"),
        *("context", "inherit_context", "isolated", "isolation", "persist_session", "session_dir", "output_transcript"),
        *("allowed_subagents", "runner", "max_tokens_total", "max_cost", "max_seconds", "output_schema"),
        *("fallback_models", "verify"),
    )
} | {"fallbackModels": "fallback_models", "inherit_extensions": "extensions", "inherit_skills": "skills"}
_RIGHTS = "an agent's rights are `tools`, `disallowed_tools` and `readonly`"
MEANINGLESS = {
    "disabled": "write `enabled: false` to switch the agent off",
    "disable": "write `enabled: false` to switch the agent off",
    "run_in_background": "",
    "package": "",
    "tags": "",
    "routingHints": "",
    "inheritSkills": "write `skills: false`",
    "defaultContext": "write `context: fork` or `context: summary` to pass the conversation on",
    "permissions": _RIGHTS,
    "permission": _RIGHTS,
    "temperature": "models choose their own",
    "maxTokens": "write `max_tokens_total` for a limit on the whole run",
    "provider": "write `model: provider/id`",
    "systemPromptMode": "write `prompt_mode`",
    "extends": "a file replaces another one as a whole",
}


def parse(text: str, path: str, source: Source) -> tuple[Definition | None, list[Diagnostic]]:
    """Parse an agent file; returns the definition, if it is usable, and all problems."""
    fields, problems = open_document(text, path, "pi", lambda block: AgentFields(block, path, FIELDS, MEANINGLESS))
    if fields is None:
        return None, problems
    name = read_name(fields, stem_counts=True)
    described = read_description(fields)
    mode = "append" if fields.read_choice("prompt_mode", ("replace", "append"), "taken as replace") == "append" else ""
    readonly = bool(fields.read_switch("readonly", doubt=True, absent=False))
    tools = declare_tools(fields)
    check_readonly(fields, tools, readonly=readonly)
    values = {**_read_scope(fields), **_read_limits(fields), **_read_running(fields)}
    _check_pairs(fields, values)
    model = fields.read_text("model")
    schema, schema_file = fields.read_schema()
    verify = fields.read_commands("verify")
    enabled = _read_enabled(fields) and not fields.is_disabled
    if name is None or fields.is_refused:
        return None, problems
    return Definition(
        name=name,
        dialect="pi",
        source=source,
        path=path,
        description=described or name,
        display_name=fields.read_text("display_name") or "",
        prompt=fields.body if mode else choose_prompt(fields, name, described),
        prompt_mode="append" if mode else "replace",
        enabled=enabled,
        readonly=readonly,
        tools=tools,
        model=None if model in (None, "", "inherit") else model,
        # The model of a packaged file is only a preference: nobody on this machine chose it.
        is_model_wish=source == "builtin" and model is not None,
        color=fields.read_text("color"),
        output_schema=schema,
        schema_file=schema_file,
        verify=verify,
        lines=fields.lines,
        fields=fields.list_reports(),
        **values,
    ), problems


def _read_enabled(fields: AgentFields) -> bool:
    value = fields.get("enabled")
    if value is None or (isinstance(value, Scalar) and (value.is_null or value.text in ("true", "True", "TRUE"))):
        return True
    if isinstance(value, Scalar) and value.text in ("false", "False", "FALSE"):
        if value.is_quoted:
            fields.reject("enabled", "false without quotes", "the agent stays enabled")
        return value.is_quoted
    fields.reject("enabled", "true or false", "the agent is disabled")
    return False


def _read_scope(fields: AgentFields) -> dict[str, Any]:
    """Extensions, skills, memory and subagents of the agent."""
    extensions = fields.read_selection("extensions")
    excluded = fields.read_words("exclude_extensions")
    if excluded is None:
        fields.reject("exclude_extensions", "a list of names", "no extensions")
        extensions, excluded = False, ()
    if "*" in excluded:
        extensions = False
    odd = [word for word in excluded if "/" in word or "\\" in word or word.startswith("~")]
    if odd:
        fields.report(f"exclude_extensions: {quote(odd[0])} is a path; expected names", "exclude_extensions")
    skills_value = fields.get("skills")
    is_null = isinstance(skills_value, Scalar) and skills_value.is_null
    allowed = fields.read_words("allowed_subagents")
    if allowed is None:
        fields.reject("allowed_subagents", "a list of agent names", "none")
    return {
        "extensions": extensions,
        "exclude_extensions": () if excluded == ("none",) else excluded,
        "skills": True if is_null else fields.read_selection("skills"),
        "memory": fields.read_choice("memory", ("user", "project", "local")),
        "allowed_subagents": _without_none(allowed or ()) if fields.has("allowed_subagents") else None,
    }


def _without_none(words: tuple[str, ...]) -> tuple[str, ...]:
    return () if words == ("none",) else words


def _read_limits(fields: AgentFields) -> dict[str, Any]:
    return {
        "thinking": fields.read_choice("thinking", THINKING, "the caller's level is used"),
        "max_turns": fields.read_count("max_turns"),
        "max_tokens_total": fields.read_count("max_tokens_total", least=1),
        "max_cost": fields.read_amount("max_cost", "an amount in US dollars above 0"),
        "max_seconds": fields.read_amount("max_seconds", "a number of seconds above 0"),
        "fallback_models": _read_fallbacks(fields),
    }


def _read_fallbacks(fields: AgentFields) -> tuple[str, ...] | None:
    if not fields.has("fallback_models"):
        return None
    words = fields.read_words("fallback_models")
    if words is None:
        fields.reject("fallback_models", "a list of models such as provider/id", "none")
    return _without_none(words or ())


def _read_running(fields: AgentFields) -> dict[str, Any]:
    """Where and how it runs; an unreadable switch gets the more restrictive value."""
    told = len(fields.problems)
    # An unknown runner names another program: running the agent as ours would give it what it never asked for.
    runner = fields.read_choice("runner", get_args(Runner), "the agent is disabled")
    fields.is_disabled |= len(fields.problems) > told
    return {
        "isolated": fields.read_switch("isolated", doubt=True),
        "inherit_context": fields.read_switch("inherit_context", doubt=False),
        "context": _read_context(fields),
        "isolation": _read_isolation(fields),
        "persist_session": fields.read_switch("persist_session", doubt=False),
        "session_dir": fields.read_text("session_dir") or None,
        "output_transcript": fields.read_switch("output_transcript", doubt=False),
        "runner": runner,
    }


def _read_context(fields: AgentFields) -> str | None:
    told = len(fields.problems)
    mode = fields.read_choice("context", get_args(ContextMode), "taken as none")
    return "none" if len(fields.problems) > told else mode


def _read_isolation(fields: AgentFields) -> str | None:
    value = fields.get("isolation")
    if value is None or (isinstance(value, Scalar) and value.is_null):
        return None
    if isinstance(value, Scalar):
        if value.text == "worktree":
            return "worktree"
        if value.text in ("off", "none", "no", "false", "False", "FALSE"):
            return "off"
        if find_close(value.text.lower(), ("worktree",), 0.75):
            fields.reject("isolation", "worktree or off", "taken as worktree")
            return "worktree"
    fields.reject("isolation", "worktree or off")
    return None


def _check_pairs(fields: AgentFields, values: dict[str, Any]) -> None:
    """Report fields that contradict each other; the more restrictive one applies."""
    extensions, excluded = values["extensions"], values["exclude_extensions"]
    if values["isolated"] and fields.has("extensions") and extensions is not False:
        text = "extensions: has no effect, since the agent is isolated"
        fields.report(text, "extensions", None, "contradiction", "warning")
    if isinstance(extensions, tuple):
        hidden = {word.lower() for word in excluded}
        for word in (word for word in extensions if word.lower() in hidden):
            text = f"exclude_extensions: {quote(word)} is listed in extensions, too; it is excluded"
            fields.report(text, "exclude_extensions", None, "contradiction", "warning")
    if values["session_dir"] and not values["persist_session"]:
        text = "session_dir: has no effect without `persist_session: true`"
        fields.report(text, "session_dir", None, "contradiction", "warning")
