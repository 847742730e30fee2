import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.engine.build import choose_runner
from retinue.engine.model_choice import choose_level
from retinue.engine.request import RunRequest
from retinue.engine.run_config import Policy, RunConfig
from retinue.settings.run_config import build_surfaces
from retinue.settings.subagents import SubagentsConfig

AGENT = Definition(name="a", dialect="codingcode", source="user", path="")
REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")
STAYS = "its MCP servers are configured on this machine; using runner inprocess"


POLICY = Policy(surfaces=build_surfaces(SubagentsConfig(), {}))
CONFIG = RunConfig(lambda name, surface: AGENT, {}, policy=POLICY, runner="cluster", has_remote=True)


@pytest.mark.parametrize("surface", ["fleet", "subagent", "dispatch"])
@pytest.mark.parametrize(
    ("fields", "runner", "words"),
    [
        ({"mcp_servers": ("docs",)}, "inprocess", STAYS),
        ({}, "cluster", ""),
    ],
    ids=["servers", "none"],
)
def test_servers_keep_a_run_here(surface, fields, runner, words):
    definition, request = replace(AGENT, **fields), replace(REQUEST, surface=surface)
    assert choose_runner(definition, request, CONFIG) == (runner, words)


def test_first_known_level_is_chosen() -> None:
    assert (choose_level(None, "deep", "high", "low"), choose_level("deep", None), choose_level()) == (
        "high",
        None,
        None,
    )
