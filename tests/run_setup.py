"""Builds the setup of a main run for tests, with the builder that production uses."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from retinue.core.model import Model
from retinue.core.run import Run
from retinue.core.tool import Tool
from retinue.engine.build import RunHost, build_run
from retinue.engine.request import RunRequest
from retinue.engine.run_config import MAIN, MainRules, RunConfig
from retinue.engine.setup import RunSetup
from retinue.models.script_file import parse_script
from retinue.models.scripted import ScriptedModel
from retinue.testing.clock import FakeClock


def build_setup(
    run_id: str,
    cwd: Path,
    model: Model | None = None,
    *,
    tools: Mapping[str, Tool] | None = None,
    sections: Mapping[str, str] | None = None,
    **changes: Any,
) -> RunSetup:
    """A main run without a definition; `changes` replace other parts of its setup. Needs no event loop."""
    main = MainRules(
        cwd=cwd,
        choose_model=lambda definition: (model or ScriptedModel(parse_script([])), "off"),
        choose_tools=lambda plan, own: tools or {},
        build_sections=lambda definition, given: sections or {},
        charge=lambda asked: asked,
        warn=lambda text: None,
    )
    # A run without a parent asks neither for another model nor for facts about its directory.
    host = RunHost(FakeClock(), cast(Any, None), cast(Any, None))
    request = RunRequest(agent="", task="", description="", surface="")
    run = Run(id=run_id, parent_id="", depth=0, agent="", description="")
    steps = build_run(host, RunConfig(lambda name, surface: MAIN, {}, main=main), request, run=run)
    try:
        steps.send(None)
    except StopIteration as built:
        return cast(RunSetup, built.value).change(**changes)
    raise RuntimeError("a main run without extensions is built without waiting")
