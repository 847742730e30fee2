"""Turns a call of `Agent` into a run request: values of the agent file, the call, and the settings. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from retinue.core.amounts import check_limits
from retinue.core.definition import ContextMode, Definition
from retinue.core.errors import ModelError, RetinueError
from retinue.core.model import ModelInfo
from retinue.engine.request import RunRequest
from retinue.engine.session_path import find_session_dir
from retinue.models.registry import OutOfReach
from retinue.models.resolve import ModelChoice
from retinue.surfaces.fleet.ports import FleetSettings

DEFAULT_AGENT = "general-purpose"
MAX_DESCRIPTION = 200
_DESCRIPTION_WORDS = 5
_INHERIT = "inherit"


class BadModel(RetinueError):
    """Raised when the model of a call cannot be used; the text is for the caller."""


class AgentCall(Struct, frozen=True, kw_only=True):
    """The arguments of one call; blanks count as missing."""

    prompt: str = ""
    description: str = ""
    subagent_type: str = ""
    model: str = ""
    thinking: str = ""
    max_turns: int | None = None
    max_tokens_total: int | None = None
    max_cost: float | None = None
    resume: str = ""
    isolated: bool | None = None
    inherit_context: bool | None = None
    context: ContextMode | None = None
    isolation: Literal["off", "worktree"] | None = None
    schedule: str = ""
    output_schema: Any = None
    verify: Any = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "AgentCall":
        """Read arguments that already match the schema."""
        given = {
            name: value for name, value in arguments.items() if name in cls.__struct_fields__ and value is not None
        }
        for name in ("subagent_type", "model", "thinking", "resume", "schedule"):
            if name in given:
                given[name] = given[name].strip()
        words = given.get("description", "").split() or given.get("prompt", "").split()[:_DESCRIPTION_WORDS]
        given["description"] = " ".join(words)[:MAX_DESCRIPTION]
        return cls(**given)

    @classmethod
    def list_unknown(cls, arguments: Mapping[str, Any]) -> list[str]:
        """Return arguments that `Agent` does not have."""
        return [name for name in arguments if name != "retry" and name not in cls.__struct_fields__]


class ModelSelection(Struct, frozen=True):
    """The model of a requested run."""

    info: ModelInfo
    source: Literal["call", "file", "parent"]
    thinking: str | None = None
    """The thinking level in the model's name."""
    is_out_of_scope: bool = False
    is_chosen: bool = False
    """Whether a person named its provider."""
    note: str = ""
    """Why it is not the model that the call named."""


def pick_model(
    call: AgentCall,
    definition: Definition,
    *,
    parent: ModelInfo,
    resolve: Callable[..., ModelChoice],
    list_models: Callable[[], Sequence[ModelInfo]],
    scope: Sequence[str] = (),
) -> ModelSelection:
    """Choose the model: required by the file, else the call's, else optional in the file, else the parent's.

    Raises BadModel if the call's model cannot be used.
    """
    allowed = pick_scope(scope, list_models()) if scope else []
    is_pinned = definition.model not in (None, "", _INHERIT) and not definition.is_model_wish
    pick, note = None, ""
    if call.model and call.model != _INHERIT and not is_pinned:
        try:
            choice = resolve(call.model)
            pick = ModelSelection(choice.info, "call", choice.thinking)
        except OutOfReach as error:
            note = str(error)
        except ModelError:
            raise BadModel(tell_unknown(call.model, list_models())) from None
        if pick is not None and not is_in_scope(pick.info.ref, allowed):
            raise BadModel(tell_out_of_scope(call.model, allowed))
    pick = pick or _follow_file(definition, resolve) or ModelSelection(parent, "parent")
    note = f"Note: {note}: {pick.info.ref} is used." if note else ""
    return replace(pick, is_out_of_scope=not is_in_scope(pick.info.ref, allowed), note=note)


def _follow_file(definition: Definition, resolve: Callable[..., ModelChoice]) -> ModelSelection | None:
    if not definition.model or definition.model == _INHERIT:
        return None
    try:
        choice = resolve(definition.model, is_choice=definition.source != "builtin")
    except ModelError:
        return None
    return ModelSelection(choice.info, "file", choice.thinking, is_chosen=choice.is_chosen)


def to_request(
    call: AgentCall,
    definition: Definition,
    pick: ModelSelection,
    settings: FleetSettings,
    *,
    parent: ModelInfo,
    call_id: str = "",
) -> RunRequest:
    """Build the request of a call. Values of the agent file win.

    Raises UsageError for an invalid limit or a session directory that is not allowed.
    """
    check_limits(call)  # an invalid number must not be compared with the file's limits
    isolation = definition.isolation or call.isolation
    context = pick_context(call, definition, pick, parent)
    writes = _first(definition.output_transcript, settings.output_transcript, default=True)
    request = RunRequest(
        agent=definition.name,
        task=call.prompt,
        description=call.description,
        surface="fleet",
        context=context,
        model=None if pick.source == "parent" else pick.info.ref,
        is_model_chosen=pick.is_chosen,
        thinking=_pick_thinking(call, definition, pick),
        isolated=_first(definition.isolated, call.isolated, default=False),
        isolation="worktree" if isolation == "worktree" else None,
        join=settings.default_join,
        call_id=call_id,
        session_dir=find_session_dir(definition, settings.grounds),
        keeps_session=definition.persist_session is not False,
        transcript_dir=settings.transcript_dir if writes else "",
        output_schema=call.output_schema,
        verify=call.verify or (),
        is_verify_judged=bool(call.verify),
        limits=replace(
            settings.limits.lower(definition.max_tokens_total, definition.max_cost).lower(
                call.max_tokens_total, call.max_cost
            ),
            max_turns=pick_turns(call, definition, settings),
        ),
    )
    name = definition.display_name or definition.name
    return _with_invocation(request, pick, parent=parent, display_name=name)


def pick_context(call: AgentCall, definition: Definition, pick: ModelSelection, parent: ModelInfo) -> ContextMode:
    """Return what the run gets of the caller's conversation; a fork needs the caller's model."""
    mode = ask_context(call, definition)
    return "summary" if mode == "fork" and pick.info.ref != parent.ref else mode


def ask_context(call: AgentCall, definition: Definition) -> ContextMode:
    """Return what the file wants the run to get, else the call."""
    for each in (definition, call):
        if each.context is not None:
            return each.context
        if each.inherit_context is not None:
            return "summary" if each.inherit_context else "none"
    return "none"


def explain_context(request: RunRequest, call: AgentCall, definition: Definition, parent: ModelInfo) -> str:
    """Return a note if a run that was to be a fork is none."""
    if request.context == "fork" or ask_context(call, definition) != "fork":
        return ""
    return f"Note: a fork needs your model, {parent.ref}; the agent gets a summary of this conversation instead."


def pick_turns(call: AgentCall, definition: Definition, settings: FleetSettings) -> int | None:
    """Return the turn limit; None means no limit. 0 in the file means no limit, whatever the call says."""
    if definition.max_turns is not None:
        return definition.max_turns or None
    return call.max_turns or settings.default_max_turns or None


def render_tags(invocation: Mapping[str, Any]) -> list[str]:
    """Return short labels for the special settings of a run."""
    tags = [f"thinking: {invocation['thinking']}"] if invocation.get("thinking") else []
    tags += [f"max turns: {invocation['maxTurns']}"] if invocation.get("maxTurns") else []
    tags += ["isolated"] if invocation.get("isolated") else []
    tags += ["fork"] if invocation.get("context") == "fork" else []
    tags += ["inherits context"] if invocation.get("inheritContext") else []
    tags += ["worktree"] if invocation.get("isolation") == "worktree" else []
    return tags


def _pick_thinking(call: AgentCall, definition: Definition, pick: ModelSelection) -> str | None:
    from_file = definition.thinking or (pick.thinking if pick.source == "file" else None)
    return from_file or call.thinking or pick.thinking or None


def _with_invocation(request: RunRequest, pick: ModelSelection, *, parent: ModelInfo, display_name: str) -> RunRequest:
    facts: dict[str, Any] = {
        "displayName": display_name if display_name != request.agent else None,
        "model": pick.info.ref,
        "modelName": shorten_name(pick.info) if pick.info.ref != parent.ref else None,
        "thinking": request.thinking,
        "maxTurns": request.limits.max_turns,
        "isolated": request.isolated or None,
        "inheritContext": request.context == "summary" or None,
        "context": "fork" if request.context == "fork" else None,
        "isolation": request.isolation,
    }
    return replace(request, invocation={name: value for name, value in facts.items() if value is not None})


def _first(*values: bool | None, default: bool) -> bool:
    return next((value for value in values if value is not None), default)


MAX_LISTED = 100


def pick_scope(entries: Iterable[str], models: Sequence[ModelInfo]) -> list[str]:
    """Return the entries that exactly name an available model; patterns and partial names are ignored."""
    refs = {model.ref.lower(): model.ref for model in models}
    found = (refs.get(entry.strip().lower()) for entry in entries)
    return list(dict.fromkeys(ref for ref in found if ref is not None))


def is_in_scope(ref: str, scope: Sequence[str]) -> bool:
    """Return whether a model may be chosen; without a scope all may."""
    return not scope or ref.lower() in {allowed.lower() for allowed in scope}


def tell_unknown(name: str, models: Sequence[ModelInfo]) -> str:
    return "\n".join((f'Model not found: "{name}".', "", "Available models:", *_list(model.ref for model in models)))


def tell_out_of_scope(name: str, scope: Sequence[str]) -> str:
    listed = _list(scope)
    return "\n".join((f'Model not in scope: "{name}".', "", "Allowed models (from enabledModels):", *listed))


def shorten_name(info: ModelInfo) -> str:
    """Return a short model name such as `sonnet 4.5`."""
    name = info.name or info.id
    return (name[len("Claude ") :] if name.startswith("Claude ") else name).lower()


def _list(refs: Iterable[str]) -> list[str]:
    names = sorted(refs)
    lines = [f"  {name}" for name in names[:MAX_LISTED]] or ["  (none)"]
    if len(names) > MAX_LISTED:
        lines.append(f"  … and {len(names) - MAX_LISTED} more (list_models shows all)")
    return lines
