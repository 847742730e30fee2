"""What a run gets where the request, the agent's file and the user each have a say: runner, model, level, limits.

Pure, but for opening a model. What it may use is decided elsewhere.
"""

from typing import TypeVar

from retinue.core.definition import Definition
from retinue.core.errors import ModelError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import Model
from retinue.engine.budget import BudgetedModel
from retinue.engine.kit import Kit, Models, Policy
from retinue.engine.limits import CLEANUP_S, Limits
from retinue.engine.remote_request import REMOTE, Runner
from retinue.engine.request import RunRequest
from retinue.models.reach import OutOfReach

Number = TypeVar("Number", int, float)
ISOLATED_CLEANUP_S = 120.0
"""Saving the work of a whole repository takes longer than closing a file."""


def choose_runner(definition: Definition, request: RunRequest, kit: Kit) -> Runner:
    """Where a run works: where its file says, else where the settings say."""
    wanted = definition.runner or kit.runner
    if request.surface == "dispatch" and wanted in ("process", "pi"):
        return "inprocess"  # what its runs may do is asked here, call by call, and out of a process nobody could ask
    if wanted == "pi" and definition.source == "project" and kit.runner != "pi":
        wanted = "process"  # a pi starts its commands outside of our sandbox, which no project may choose
    # Servers that it was promised are known on this machine; another one may not have them.
    if wanted == REMOTE and (not kit.has_cluster or definition.mcp_servers):
        wanted = "inprocess"
    return "inprocess" if wanted == "process" and kit.asks() else wanted


def explain_runner(definition: Definition, request: RunRequest, kit: Kit) -> str:
    """Why a run does not work where it was wanted; empty when it does, or when that goes without saying."""
    wanted, runner = definition.runner or kit.runner, choose_runner(definition, request, kit)
    if runner == wanted or (request.surface == "dispatch" and wanted in ("process", "pi")):
        return ""
    if wanted == REMOTE and kit.has_cluster:
        return f"its MCP servers are those of this machine; it runs as {runner}"
    return f"runner {wanted} is not open to it; it runs as {runner}"


def choose_model(
    definition: Definition, request: RunRequest, inherited: Model, models: Models, *, is_foreign: bool = False
) -> tuple[Model, ThinkingLevel | None, str]:
    """What the request settles, else what the file pins or wishes, else the parent's; the level in that name; a remark.

    `is_foreign`: another program asks the model, which may know it by a name that means nothing here.
    """
    name, is_choice = name_model(definition, request)
    if not name:
        return unwrap(inherited), None, ""
    try:
        choice = models.resolve(name, is_choice=is_choice)
    except OutOfReach as error:
        if request.model is None and definition.is_model_wish:
            return unwrap(inherited), None, ""
        return unwrap(inherited), None, error.explain(inherited.info)
    except ModelError as error:
        is_lenient = definition.is_model_wish or request.surface == "fleet"
        if is_foreign or (request.model is None and is_lenient):
            return unwrap(inherited), None, ""
        raise ModelError(f"agent {quote(definition.name)}: {error}") from error
    if choice.info.ref == inherited.info.ref:
        return unwrap(inherited), choice.thinking, ""
    return models.open(choice.info), choice.thinking, choice.reason


def name_model(definition: Definition, request: RunRequest) -> tuple[str, bool]:
    """The model that a run is to have, as it is named, and whether a person wrote that name; empty for the parent's."""
    if request.model:
        return request.model, request.is_model_chosen
    name = definition.model or ""
    return "" if name == "inherit" else name, definition.source != "builtin"


def unwrap(model: Model) -> Model:
    """The model itself: a child spends on its own lease and has its own hooks, not its parent's."""
    while True:
        inner: Model | None = model.model if isinstance(model, BudgetedModel) else getattr(model, "inner_model", None)
        if inner is None:
            return model
        model = inner


def choose_limits(definition: Definition, request: RunRequest, policy: Policy) -> Limits:
    """What the request settles, else what the file says, else what the user says; 0 turns is no limit."""
    said = (request.max_turns, definition.max_turns, policy.default_max_turns)
    turns = next((number for number in said if number is not None), None)
    return Limits(
        max_turns=turns or None,
        grace_turns=policy.grace_turns,
        wall_s=request.wall_s,
        idle_s=request.idle_s,
        strict_idle=request.strict_idle,
        tool_s=request.tool_s,
        tokens=_find_smaller(request.tokens, definition.max_tokens_total),
        cost_usd=_find_smaller(request.cost_usd, definition.max_cost),
        cleanup_s=ISOLATED_CLEANUP_S if request.isolation else CLEANUP_S,
    )


def _find_smaller(one: Number | None, other: Number | None) -> Number | None:
    return min((value for value in (one, other) if value is not None), default=None)


def choose_level(*words: str | None) -> ThinkingLevel | None:
    """The first that is a level; a file may say anything."""
    return next((level for word in words for level in THINKING_LEVELS if level == word), None)
