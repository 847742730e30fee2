import json
from pathlib import Path

import pytest

import retinue
from retinue.core.errors import ToolRetry, UsageError
from retinue.core.model import ToolSpec
from retinue.core.tool import Effect, Refusing, ToolContext, ToolResult
from retinue.core.tool_table import BUILTIN_TOOLS, TOOLS, ToolRow
from retinue.tools.arguments import take_count, take_path
from retinue.tools.convert.options import ConvertOptions, ConvertPorts
from retinue.tools.files.read import sniff_image
from retinue.tools.paths import resolve_existing, resolve_path, show_name
from retinue.tools.registry import (
    ToolOptions,
    build_extra_tools,
    build_family,
    build_tools,
    load_class,
    load_description,
    rename_tools,
)
from retinue.tools.shell.environment import build_environment
from retinue.tools.web.options import WebOptions, WebPorts
from retinue.tools.web.session import WebSession

SOURCE = Path(retinue.__file__).parent


def test_tools_come_in_listed_order() -> None:
    assert tuple(build_tools(ToolOptions())) == BUILTIN_TOOLS
    assert list(build_tools(ToolOptions(), ["ls", "read"])) == ["read", "ls"]


@pytest.mark.parametrize("row", TOOLS, ids=lambda row: row.name)
def test_rows_agree_with_classes(row: ToolRow) -> None:
    made = load_class(row)
    assert made.effect is row.effect
    assert made.__module__ == "retinue." + row.file.replace("/", ".")


@pytest.mark.parametrize("row", [row for row in TOOLS if row.file.startswith("tools/")], ids=lambda row: row.name)
def test_tools_have_description_files(row: ToolRow) -> None:
    assert load_description(str(SOURCE / f"{row.file}.py"))


def test_names_are_those_of_specs() -> None:
    web = build_family("web", WebSession(WebOptions(), WebPorts()))
    convert = build_family("convert", ConvertOptions(), ConvertPorts())
    tools = {**build_tools(ToolOptions()), **build_extra_tools(), **web, **convert, **build_family("lsp", None, None)}
    assert [tool.spec.name for tool in tools.values()] == list(tools)
    assert {row.name for row in TOOLS if row.file.startswith("tools/")} == set(tools)


def test_unknown_tool_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown tool 'shell': expected some of read, bash"):
        build_tools(ToolOptions(), ["shell"])


def test_effects_are_declared() -> None:
    assert {name: tool.effect for name, tool in build_tools(ToolOptions()).items()} == {
        "read": Effect.READ,
        "bash": Effect.EXECUTE,
        "edit": Effect.WRITE,
        "write": Effect.WRITE,
        "grep": Effect.READ,
        "find": Effect.READ,
        "ls": Effect.READ,
    }


def test_specs_are_small_and_complete() -> None:
    specs = [tool.spec for tool in build_tools(ToolOptions()).values()]
    size = sum(len(json.dumps([spec.name, spec.description, spec.parameters])) for spec in specs)
    assert size < 3500
    assert all(spec.description and spec.parameters["type"] == "object" for spec in specs)
    assert {spec.name: list(spec.parameters["properties"]) for spec in specs} == {
        "read": ["path", "offset", "limit"],
        "bash": ["command", "timeout"],
        "edit": ["path", "edits"],
        "write": ["path", "content"],
        "grep": ["pattern", "path", "glob", "ignoreCase", "literal", "context", "limit"],
        "find": ["pattern", "path", "limit"],
        "ls": ["path", "limit"],
    }


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, float("inf"), float("nan"), [], {}])
def test_bad_count_is_refused(value: object) -> None:
    with pytest.raises(ToolRetry, match=r"^limit is '.+': expected a whole number, 1 or more\.$"):
        take_count({"limit": value}, "limit", 5)


def test_good_counts_are_taken() -> None:
    assert [take_count({"limit": value}, "limit", 5) for value in (None, 7, 8.0, 10**30)] == [5, 7, 8, 10**30]


@pytest.mark.parametrize("value", [None, "", " \n", 5, "a\0b", "\ud800", "x" * 5000, "é" * 3000])
def test_bad_path_is_refused(value: object) -> None:
    with pytest.raises(ToolRetry, match=r"^path is "):
        take_path({"path": value})


def test_paths_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    cwd = Path("/work dir")
    assert [resolve_path(path, cwd) for path in ("a", "@a/b", "~/x", "/abs", "a\u00a0b", "a/../b")] == [
        "/work dir/a",
        "/work dir/a/b",
        "/home/me/x",
        "/abs",
        "/work dir/a b",
        "/work dir/a/../b",
    ]


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("Shot at 9.41\u202fAM.png", "Shot at 9.41 AM.png"),
        ("cafe\u0301.txt", "caf\u00e9.txt"),
        ("d\u2019or.txt", "d'or.txt"),
        ("odd\u00a0space", "odd\u00a0space"),
        ("@at", "@at"),
    ],
)
def test_other_spellings_are_found(tmp_path: Path, stored: str, asked: str) -> None:
    (tmp_path / stored).touch()
    assert Path(resolve_existing(asked, tmp_path)) == tmp_path / stored


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\xff\xd8\xff\xe0rest", "image/jpeg"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"GIF89a...", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "image/webp"),
        (b"BM" + bytes(8) + (54).to_bytes(4, "little") + (40).to_bytes(4, "little") + bytes(20), "image/bmp"),
        (b"BM is how this text begins, no image", ""),
        (b"\x89PNG\r\n\x1a\ngarbage", ""),
        (b"", ""),
    ],
)
def test_images_are_recognised(head: bytes, kind: str) -> None:
    assert sniff_image(head) == kind


def test_names_are_shown_on_one_line() -> None:
    assert show_name("a\nb\t\x1b[0m\udcff\u2028é") == "a\\nb\\t\\x1b[0m\\xff\\u2028é"


def test_environment_keeps_what_is_not_secret() -> None:
    secrets = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GEMINI_API_KEY", "AZURE_OPENAI_API_KEY")
    kept = {"GITHUB_TOKEN": "t", "STRIPE_API_KEY": "k", "OPENAI_BASE_URL": "u", "TERM": "xterm"}
    inherited = dict.fromkeys((*secrets, "PI_SESSION_ID"), "x") | kept
    environment = build_environment(inherited, {"PI_MODEL": "m"}, "/w")
    assert {name: environment[name] for name in (*kept, "PI_MODEL", "PWD")} == {
        **kept,
        "TERM": "dumb",
        "PI_MODEL": "m",
        "PWD": "/w",
    }
    assert not {*secrets, "PI_SESSION_ID"} & set(environment)


class Shy:
    """A tool with all a tool may have besides."""

    spec = ToolSpec("shy", "Says what it was told.", {"type": "object"})
    effect = Effect.NETWORK
    hint = "say it"
    guidelines = ("Be quiet.",)
    deferred = True

    def refuse(self, arguments, problem):
        return ToolResult.of(f"no: {problem}", is_error=True)

    async def call(self, arguments, context):
        return ToolResult.of(arguments["text"])


def test_name_is_the_only_difference():
    tool = rename_tools({"shy": Shy()}, {"whisper": "shy"})["whisper"]
    assert tool.spec == ToolSpec("whisper", Shy.spec.description, Shy.spec.parameters, alias_of="shy")
    assert (tool.effect, tool.hint, tool.guidelines, tool.deferred) == (Effect.NETWORK, "say it", ("Be quiet.",), True)


async def test_renamed_tool_acts_and_refuses():
    tool = rename_tools({"shy": Shy()}, {"whisper": "shy"})["whisper"]
    assert await tool.call({"text": "hi"}, ToolContext(Path())) == ToolResult.of("hi")
    assert isinstance(tool, Refusing)
    assert tool.refuse({}, "late") == ToolResult.of("no: late", is_error=True)


def test_name_of_a_name_leads_home():
    once = rename_tools({"shy": Shy()}, {"whisper": "shy"})
    twice = rename_tools(once, {"mumble": "whisper"})
    assert (twice["mumble"].spec.name, twice["mumble"].spec.own_name) == ("mumble", "shy")


def test_unchanged_name_keeps_its_tool():
    tools = {"shy": Shy()}
    assert rename_tools(tools, {"shy": "shy"}) == tools
