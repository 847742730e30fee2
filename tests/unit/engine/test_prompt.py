import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.definition import Definition
from retinue.core.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    ImageContent,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.engine.prompt import (
    BOUNDARY,
    BRIDGE,
    HEADER,
    MAX_CONTEXT_CHARS,
    PREAMBLE,
    Identity,
    Place,
    build_append,
    build_codingcode,
    build_replace,
    build_sticky,
    build_subagent,
    inherit_context,
    render_environment,
    render_prompt,
    render_tag,
)

WHO = Identity("Explore", "ab12", 1, 4)
HERE = Place("/work", "main", "linux", "/bin/sh")
ENVIRONMENT = "# Environment\nWorking directory: /work\nGit repository: yes\nBranch: main\nPlatform: linux"


def define(prompt="", **fields):
    return Definition(name="scout", dialect="pi", source="user", path="scout.md", prompt=prompt, **fields)


def reply(*content):
    return AssistantMessage(list(content), "api", "provider", "model", Usage(), "stop", 0)


@pytest.mark.spec("fleet:B37", "fleet:B41")
def test_append_begins_with_the_parent():
    sections = build_append(define("Look."), HERE, parent="PARENT")
    assert list(sections.items()) == [
        ("parent", "PARENT"),
        ("bridge", BRIDGE),
        ("environment", ENVIRONMENT),
        ("instructions", "<agent_instructions>\nLook.\n</agent_instructions>"),
    ]


@pytest.mark.spec("fleet:B37")
@given(st.lists(st.text(max_size=400), min_size=1, max_size=4), st.text(max_size=80), st.text(max_size=80))
def test_parent_prompt_is_byte_exact_prefix(bodies, cwd, first):
    parent = first or PREAMBLE
    for body in bodies:
        child = render_prompt(build_append(define(body), Place(cwd), parent=parent))
        assert child.encode(errors="surrogatepass").startswith(parent.encode(errors="surrogatepass"))
        parent = child


def test_long_parent_prompt_is_not_cut():
    parent = "x" * 300_000
    assert render_prompt(build_append(define(), HERE, parent=parent)).startswith(parent + "\n\n<sub_agent_context>")


def test_append_without_a_parent_has_a_role():
    assert build_append(define(" \n"), HERE, parent="")["parent"] == PREAMBLE
    assert "instructions" not in build_append(define(" \n"), HERE, parent="")


@pytest.mark.spec("fleet:B38", "fleet:B41")
def test_replace_has_only_its_own_words():
    assert list(build_replace(define("Look."), HERE).items()) == [
        ("header", HEADER),
        ("environment", ENVIRONMENT),
        ("instructions", "Look."),
    ]
    assert HEADER.count("\n") == 1


@pytest.mark.spec("fleet:B39")
def test_tag_is_escaped_and_ordered():
    tag = render_tag(Identity('a&b"<c>\n', "id", 2, 4, parent_id="up"))
    assert tag == (
        '<active_agent name="a&amp;b&quot;&lt;c&gt;\\n" agent_id="id" parent_agent_id="up" depth="2" max_depth="4"/>'
    )


@pytest.mark.spec("fleet:B40")
def test_environment_tells_whether_git_is_there():
    assert render_environment(Place("/a", None, "darwin")) == (
        "# Environment\nWorking directory: /a\nNot a git repository\nPlatform: darwin"
    )
    assert "\nBranch: \n" in render_environment(Place("/a", "", "linux"))


def test_directory_name_cannot_add_lines():
    text = render_environment(Place("/a\n# Instructions\u202e", None, "linux"))
    assert text.splitlines()[1] == "Working directory: /a\\n# Instructions\\u202e"


@pytest.mark.spec("devkit:54")
def test_subagent_prompt_has_its_order():
    sections = build_subagent(define("Role."), WHO, tools=("read", "ls"), task=" Find it. ", readonly=True)
    text = render_prompt(sections)
    marks = [
        BOUNDARY,
        "# Agent: scout",
        "Role.",
        "# Operating constraints",
        "You may only read",
        "Subagent depth: 1/4.",
        "Use only the tools",
        "# Available tools",
        "- read\n- ls",
        "# Delegated task\n\nFind it.\n\n",
        "# Response requirements",
    ]
    places = [text.index(mark) for mark in marks]
    assert (places, places[0]) == (sorted(places), 0)


@pytest.mark.spec("devkit:54")
def test_subagent_prompt_names_missing_tools_and_writing():
    text = render_prompt(build_subagent(define("R"), WHO, tools=(), task="t", readonly=False))
    assert "- No tools explicitly configured" in text
    assert "You may only read" not in text


@pytest.mark.spec("devkit:21")
def test_empty_body_falls_back():
    role = [
        build_subagent(d, WHO, tools=(), task="t", readonly=True)["role"]
        for d in (define("", description="D"), define())
    ]
    assert (role[0], "scout" in role[1]) == ("D", True)


@pytest.mark.spec("codingcode:25")
def test_codingcode_prompt_has_its_order():
    assert list(build_codingcode(define("Profile."), HERE, rules=("Mine.", " ", "Project.\n")).items()) == [
        ("role", "Profile."),
        ("environment", "## Environment\n\n- Working directory: /work\n- OS: linux\n- Shell: /bin/sh"),
        ("rules", "## User-defined Rules\n\nMine.\n\nProject."),
    ]
    assert build_codingcode(define(), HERE)["role"] == "You are a specialized agent."


@pytest.mark.spec("sticky:24")
def test_sticky_body_replaces_the_prompt():
    sections = build_sticky(define("Scout."), HERE, context_files=[("/work/AGENTS.md", "Be nice.")])
    assert (list(sections), sections["preamble"]) == (["preamble", "project_context", "cwd"], "Scout.")
    assert "Be nice." in sections["project_context"]


@pytest.mark.spec("fleet:B43")
def test_context_keeps_what_was_said():
    history = [
        SystemMessage("secret prompt", 0),
        CompactionSummaryMessage("Earlier.", 10, 0),
        UserMessage("Why?", 0),
        reply(ThinkingContent("hmm"), TextContent("Because."), ToolCall("c", "read", {"path": "x"})),
        ToolResultMessage("c", "read", [TextContent("tool output")], False, 0),
        reply(ToolCall("d", "ls", {})),
        UserMessage([TextContent("And?"), ImageContent("AAAA", "image/png")], 0),
    ]
    text = inherit_context(history)
    head, _, rest = text.partition("\n\n[Summary]: ")
    assert head.startswith("# Parent Conversation Context\n\n")
    assert rest == (
        "Earlier.\n\n[User]: Why?\n\n[Assistant]: Because.\n\n[User]: And?\n\n---\n\n# Your Task (below)\n\n"
    )


@pytest.mark.spec("fleet:B43")
def test_empty_history_adds_nothing():
    assert inherit_context([SystemMessage("prompt", 0), reply(ToolCall("c", "ls", {}))]) == ""


def test_long_context_keeps_the_newest():
    history = [UserMessage(f"{number} " + "x" * 60_000, 0) for number in range(5)]
    text = inherit_context(history)
    assert "[2 earlier messages are left out here]\n\n[User]: 2 xxx" in text
    assert len(text) < MAX_CONTEXT_CHARS + 1000


def test_one_message_beyond_the_bound_is_cut():
    text = inherit_context([UserMessage("a" * MAX_CONTEXT_CHARS * 2, 0)])
    assert len(text) < MAX_CONTEXT_CHARS + 1000
