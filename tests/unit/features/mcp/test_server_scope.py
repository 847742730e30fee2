import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.features.mcp.server import McpServer, choose_servers, find_named

SERVERS = {
    "one": McpServer("one", "x", read_only_tools=("get",)),
    "two": McpServer("two", url="https://x.test"),
}


def choose(exact=False, isolated=False, dialect="pi", names=None, selectors=(), **fields):
    tools = DeclaredTools(names=names, selectors=selectors)
    definition = Definition(name="a", dialect=dialect, source="user", path="a.md", tools=tools, **fields)
    return choose_servers(definition, SERVERS, isolated=isolated, exact=exact)


def test_plain_agent_may_need_all():
    assert choose() == choose(names=("read",)) == ["one", "two"]


@pytest.mark.parametrize(
    "fields",
    [
        {"isolated": True},
        {"extensions": False},
        {"extensions": ("other",)},
        {"exclude_extensions": ("mcp",)},
        {"exact": True, "names": ("read",)},
        {"dialect": "codingcode"},
        {"selectors": ("ext:other",)},
    ],
    ids=str,
)
def test_nobody_waits_for_useless_servers(fields):
    assert choose(**fields) == []


@pytest.mark.spec("codingcode:31")
def test_listed_servers_are_the_only_ones():
    assert choose(mcp_servers=("two", "unknown")) == ["two"]
    assert choose(dialect="codingcode", mcp_servers=("one",)) == ["one"]


def test_readonly_agent_needs_vouched_servers():
    assert choose(readonly=True) == ["one"]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("two:search", ["two"]),
        ("mcp__one__get", ["one"]),
        ("mcp__one__*", ["one"]),
        ("ext:mcp", ["one", "two"]),
        ("ext:mcp/search", ["one", "two"]),
        ("ext:mcp/two:search", ["two"]),
        ("ext:MCP/mcp__one__get", ["one"]),
        ("ext:other", []),
        ("read", []),
        ("three:x", []),
    ],
)
def test_words_name_servers(word, expected):
    assert find_named([word], SERVERS) == expected
