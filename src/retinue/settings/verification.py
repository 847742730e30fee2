"""Decides which commands verify the result of a run: those of the settings, of its agent's file and of the call.

They add up, so that nobody removes those of another. Commands of a project need the user's consent. Must not know how
they are run.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from retinue.engine.run_config import HERE, REMOTE, RunPlan
from retinue.features.verification import VerificationFeature, VerifyOptions
from retinue.settings.config import Config
from retinue.settings.consent import Consents, tell_waiting
from retinue.tools.policy import reads_only

if TYPE_CHECKING:
    from retinue.features.checkpoint.feature import Checkpoints

KEY = "verify"


def choose_verification(config: Config, plan: RunPlan) -> VerifyOptions:
    """Return the commands for one run; those of the settings are for runs that may change files."""
    own, definition, request = config.crew.settings, plan.definition, plan.request
    commands, refused = list[str](), list[str]()
    for scope, value in config.crew.list_values(KEY) if own.verify and not reads_only(plan.rights) else []:
        refusal = "" if scope != "project" else _judge(config, KEY, value)
        commands += [] if refusal else value
        refused += [refusal] if refusal else []
    if definition.verify:
        name = f"{definition.name}/{KEY}"
        refusal = "" if definition.source != "project" else _judge(config, name, definition.verify)
        commands += [] if refusal else definition.verify
        refused += [refusal] if refusal else []
    if not request.is_verify_judged:
        commands += request.verify
    return VerifyOptions(
        tuple(dict.fromkeys(commands)),
        request.verify if request.is_verify_judged else (),
        tuple(refused),
        own.verify_seconds,
    )


def _judge(config: Config, name: str, commands: tuple[str, ...]) -> str:
    """Return why commands of the project are not run; empty if the user consented to them as they are now."""
    waiting = tell_waiting(Consents(config.paths, "commands", []).judge(name, list(commands)))
    if not waiting:
        return ""
    return f"{name} of this project {waiting}. To approve it: retinue trust --command {name} --yes"


def build_verification(
    config: Config, plan: RunPlan, warn: Callable[[str], None], checkpoints: "Checkpoints | None"
) -> VerificationFeature:
    """Return the feature that verifies a run and records what the host sees of it."""
    options = choose_verification(config, plan)
    for refusal in options.refused:
        warn(f"the result is not verified: {refusal}")
    is_copy, is_elsewhere = plan.request.isolation == "worktree", plan.runner not in HERE
    around: dict[str, Any] = {}
    if checkpoints is not None and not is_copy:
        around = {"open_verification": partial(checkpoints.open_verification, is_elsewhere=is_elsewhere)}
    # What changes in a copy is told by its branch, but not whether a command did it that verifies the result.
    is_listed = bool(options.all) if is_copy else plan.runner != REMOTE
    return VerificationFeature(
        options,
        plan.tools.get("bash"),
        watches=is_listed and plan.runner != REMOTE and not reads_only(plan.rights),
        is_elsewhere=is_elsewhere,
        home=config.paths.home,
        folder=config.paths.own_dir / "receipts" if plan.runner == "durable" else None,
        **around,
    )
