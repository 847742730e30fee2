import pytest
from msgspec.structs import replace

from retinue.core.definition import DeclaredTools, Definition
from retinue.surfaces.fleet.describe import (
    describe_agent,
    fill_template,
    load_template,
    render_types,
    render_types_compact,
)
from retinue.surfaces.fleet.ports import FleetSettings

READER = Definition(
    name="Explore",
    dialect="pi",
    source="builtin",
    path="e",
    description="Looks around.\nFast. Never writes.",
    model="anthropic/claude-haiku-4-5-20251001",
    tools=DeclaredTools(("read", "grep")),
)
GENERAL = Definition(name="general-purpose", dialect="pi", source="builtin", path="g", description="Anything")


def read(path):
    return path.read_text() if path.exists() else None


def describe(settings, depth=0, definitions=(READER, GENERAL)):
    return describe_agent(settings, definitions, depth=depth, max_depth=4)


@pytest.mark.spec("fleet:B98")
def test_types_are_listed_with_model_and_tools():
    assert render_types((READER, GENERAL)).split("\n") == [
        "- Explore: Looks around. Fast. Never writes. (claude-haiku-4-5) (Tools: read, grep)",
        "- general-purpose: Anything (Tools: *)",
    ]
    assert render_types_compact((READER, GENERAL)).split("\n") == [
        "- Explore: Looks around.",
        "- general-purpose: Anything",
    ]


@pytest.mark.parametrize(("is_wish", "shown"), [(True, ""), (False, " (its model claude-haiku-4-5 is not available)")])
def test_missing_model_is_not_advertised(is_wish, shown):
    definition = replace(READER, is_model_wish=is_wish)
    assert render_types([definition], {"Explore"}).split("writes.")[1] == f"{shown} (Tools: read, grep)"


@pytest.mark.parametrize(
    ("tools", "shown"),
    [
        (DeclaredTools(()), "none"),
        (DeclaredTools(("Agent",), all_builtins=True), "*, Agent"),
        (DeclaredTools(("read", "bash"), denied=("bash",)), "read"),
        (DeclaredTools((), selectors=("ext:mcp",)), "ext:mcp"),
        (DeclaredTools(inherits=True), "the caller's"),
    ],
)
def test_tools_are_shown_as_declared(tools, shown):
    assert render_types([replace(READER, tools=tools, model=None)]).endswith(f"(Tools: {shown})")


@pytest.mark.spec("fleet:B98")
def test_compact_mentions_everything_shortly():
    full, compact = describe(FleetSettings()), describe(FleetSettings(description_mode="compact"))
    words = ("background", "resume", "steer", "worktree", ".pi/agents", "self-contained", "depth 1 of 4")
    assert [word for word in words if word not in compact.text] == []
    assert len(load_template("compact")) < 0.35 * len(load_template("full"))
    assert (full.warnings, compact.warnings) == ((), ())


@pytest.mark.spec("fleet:B98")
def test_full_template_renders_as_a_custom_one(tmp_path):
    (tmp_path / "custom.md").write_text(load_template("full") + "\n")
    custom = FleetSettings(description_mode="custom", read_template=read, template_files=(tmp_path / "custom.md",))
    assert describe(custom) == describe(FleetSettings())


@pytest.mark.spec("fleet:B98")
def test_unknown_placeholder_stays_with_a_warning(tmp_path):
    (tmp_path / "custom.md").write_text("{{currentDepth}}/{{maxDepth}} {{nope}} {{agentDir}}{{nope}} { {x} }")
    settings = FleetSettings(
        description_mode="custom",
        read_template=read,
        template_files=(tmp_path / "custom.md",),
        agent_dir=r"\1 $& {{x}}",
    )
    described = describe(settings, depth=1)
    assert described.text == r"2/4 {{nope}} \1 $& {{x}}{{nope}} { {x} }"
    assert described.warnings == ("agent tool description: unknown placeholder '{{nope}}' left as it is",)


@pytest.mark.spec("fleet:B98")
def test_missing_template_means_full(tmp_path):
    (tmp_path / "empty.md").write_text(" \n")
    files = (tmp_path / "empty.md", tmp_path / "none.md")
    described = describe(FleetSettings(description_mode="custom", read_template=read, template_files=files))
    assert described.text == describe(FleetSettings()).text
    assert [warning.split(": ")[-1][:5] for warning in described.warnings] == ["empty", "toolD"]


def test_deepest_agents_are_told_so():
    assert "at depth 4 of 4 and cannot start others" in describe(FleetSettings(), depth=3).text
    assert "depth 1 of 4; one whose file lists Agent" in describe(FleetSettings()).text


def test_filling_is_literal():
    assert fill_template("a {{b}} {{c}}", {"b": "{{c}}", "c": "x"}) == ("a {{c}} x", [])
