import json

import pytest

from tests.flows.lsp_world import World

COMPLAINTS = """
def complain(severity, line, **more):
    return {"severity": severity, "range": place(line), "message": f"number {severity}", **more}
def ask(message):
    assert message["method"] == "textDocument/diagnostic"
    items = [complain(4, 9), complain(1, 0, code="E1", source="fake"), complain(2, 1), complain(3, 2), {"bad": 1}, 5]
    answer(message, {"kind": "full", "items": items})
"""


@pytest.mark.spec("devkit:77")
async def test_servers_lists_ten_and_starts_none(tmp_path):
    async with World(tmp_path).open() as world:
        is_error, text, details = await world.ask("servers")
        rows = {row["id"]: row for row in details["servers"]}
    assert (is_error, len(rows), world.notes, text.splitlines()[0]) == (False, 10, [], "action: servers")
    program = str(world.bin / "gopls")
    assert rows["gopls"] == {"id": "gopls", "extensions": [".go"], "status": "installed", "program": program}


@pytest.mark.parametrize(
    ("severity", "shown"),
    [
        ("error", ["a.go:1:1: error: number 1 [E1]"]),
        ("warning", ["a.go:1:1: error: number 1 [E1]", "a.go:2:1: warning: number 2"]),
        ("info", ["a.go:1:1: error: number 1 [E1]", "a.go:2:1: warning: number 2", "a.go:3:1: info: number 3"]),
    ],
)
async def test_severity_includes_what_is_worse(tmp_path, severity, shown):
    async with World(tmp_path, COMPLAINTS).open() as world:
        _, text, details = await world.ask("diagnostics", file="a.go", severity=severity)
    assert text.splitlines() == ["action: diagnostics", f"severity: {severity}", *shown]
    assert details["diagnostics"][0] == {
        "line": 1,
        "column": 1,
        "severity": "error",
        "message": "number 1",
        "code": "E1",
        "source": "fake",
    }
    assert (details["diagnosticsTotal"], details["receivedResponse"]) == (len(shown), True)


async def test_published_diagnostics_are_awaited(tmp_path):
    push = """
    CAN = {}
    def hear(message):
        if message["method"] == "textDocument/didOpen":
            uri = message["params"]["textDocument"]["uri"]
            item = {"severity": 1, "range": place(0), "message": "pushed"}
            for items in ([], [item]):
                send(method="textDocument/publishDiagnostics", params={"uri": uri, "version": 1, "diagnostics": items})
    """
    async with World(tmp_path, push).open() as world:
        first = await world.ask("diagnostics", file="a.go")
        assert first[1] == "action: diagnostics\na.go:1:1: error: pushed"
        assert await world.ask("diagnostics", file="a.go") == first


async def test_missing_publication_is_a_timeout(tmp_path, monkeypatch):
    async with World(tmp_path, "CAN = {}").open() as world:
        await world.define()
        (session,) = world.pool.list_sessions()
        object.__setattr__(session, "server", replace_wait(session.server))
        told = await world.ask("diagnostics", file="a.go")
    details = {"diagnostics": [], "diagnosticsTotal": 0, "diagnosticsTruncated": False, "receivedResponse": False}
    assert told == (False, "action: diagnostics\nTimeout: LSP server did not respond. Try again.", details)


def replace_wait(server):
    from msgspec import structs

    return structs.replace(server, wait_s=0.2)


@pytest.mark.spec("devkit:79")
async def test_missing_file_is_unsupported(tmp_path):
    async with World(tmp_path).open() as world:
        told = await world.ask("diagnostics", file="gone.go")
    details = {"diagnostics": [], "diagnosticsTotal": 0, "diagnosticsTruncated": False, "receivedResponse": False}
    why = "file not found: gone.go"
    assert told == (False, f"action: diagnostics\nUnsupported: {why}", {**details, "unsupported": why})


@pytest.mark.spec("devkit:79")
@pytest.mark.parametrize("files", [None, [], ["", " "], [f"f{number}.go" for number in range(65)]])
async def test_files_are_one_to_sixty_four(tmp_path, files):
    async with World(tmp_path).open() as world:
        is_error, text, details = await world.ask("workspace-diagnostics", files=files)
    assert (is_error, details["error"]["code"], "64" in text, world.notes) == (True, "INVALID_INPUT", True, [])


async def test_workspace_diagnostics_tell_each_file(tmp_path):
    async with World(tmp_path, COMPLAINTS).open() as world:
        (world.work / "notes.txt").touch()
        _, text, details = await world.ask(
            "workspace-diagnostics", files=["a.go", "gone.go", "notes.txt"], severity="error"
        )
    assert [(item["file"], item["status"], len(item["diagnostics"])) for item in details["items"]] == [
        ("a.go", "ok", 1),
        ("gone.go", "unsupported", 0),
        ("notes.txt", "unsupported", 0),
    ]
    assert text.splitlines()[2:] == [
        "a.go:1:1: error: number 1 [E1]",
        "gone.go: Unsupported: file not found: gone.go",
        "notes.txt: Unsupported: no language server is known for '.txt' files",
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"action": "hover"}, 'Action "hover" requires a file path.'),
        ({"action": "diagnostics", "file": " "}, 'Action "diagnostics" requires a file path.'),
        ({"action": "hover", "file": "a.go"}, 'Action "hover" requires line/column or a query matching a symbol.'),
        (
            {"action": "hover", "file": "a.go", "line": 1},
            'Action "hover" requires line/column or a query matching a symbol.',
        ),
    ],
)
async def test_missing_arguments_are_told(tmp_path, arguments, text):
    async with World(tmp_path).open() as world:
        told = await world.ask(**arguments)
    assert told == (True, text, {"error": {"code": "INVALID_INPUT", "message": text}})


SYMBOLS = """
def ask(message):
    note(message["method"].rpartition("/")[2])
    if message["method"].endswith("documentSymbol"):
        inner = [{"name": "Greeting", "kind": 6, "range": place(5), "selectionRange": place(5, 3)}]
        outer = {"name": "Hall", "kind": 5, "range": place(1), "selectionRange": place(1, 2), "children": inner}
        flat = {"name": "greet", "kind": 12, "location": {"uri": "x", "range": place(7, 1)}}
        answer(message, [outer, flat, {"name": "odd"}, None])
    else:
        note(json.dumps(message["params"]["position"]))
        answer(message, None)
"""


@pytest.mark.parametrize(
    ("query", "place"), [("greet", "8:2 (greet)"), ("GREETING", "6:4 (Greeting)"), ("al", "2:3 (Hall)")]
)
async def test_query_finds_a_symbol(tmp_path, query, place):
    async with World(tmp_path, SYMBOLS).open() as world:
        told = await world.ask("hover", file="a.go", query=query)
    lines = ["action: hover", f"query: {query}", f"resolvedPosition: {place}", "No hover information."]
    assert told == (False, "\n".join(lines), None)


@pytest.mark.parametrize("action", ["hover", "symbols"])
async def test_query_without_a_match_is_told(tmp_path, action):
    async with World(tmp_path, SYMBOLS).open() as world:
        is_error, text, _ = await world.ask(action, file="a.go", query="wall")
    assert (is_error, "No symbol of 'a.go' matches 'wall'; it has Hall, Greeting, greet." in text) == (
        action == "hover",
        True,
    ), text


async def test_symbols_are_lines(tmp_path):
    async with World(tmp_path, SYMBOLS).open() as world:
        told = await world.ask("symbols", file="a.go")
    lines = ["class Hall (2:3)", "  method Greeting (6:4)", "function greet (8:2)"]
    assert told == (
        False,
        "\n".join(("action: symbols", *lines)),
        {"lines": lines, "total": 3, "truncated": False},
    )


async def test_long_lists_are_cut(tmp_path):
    many = """
    def ask(message):
        uri = "file:///usr/lib/" + "x" * 600
        answer(message, [{"uri": uri, "range": place(line)} for line in range(300)] * 2)
    """
    async with World(tmp_path, many).open() as world:
        _, text, details = await world.define()
    assert (len(details["results"]), details["total"], details["truncated"]) == (200, 300, True)
    assert (len(text), text.endswith("[cut at 60000 characters]")) == (60_000, True)


async def test_columns_count_characters(tmp_path):
    tell = 'def ask(message):\n    note(json.dumps(message["params"]["position"]))\n    answer(message, [])'
    async with World(tmp_path, tell).open() as world:
        world.file.write_text("a😀b := c\n")
        for column in (3, 4, 99):
            await world.define(column=column)
    places = ['{"line": 0, "character": 3}', '{"line": 0, "character": 4}', '{"line": 0, "character": 9}']
    assert world.notes == ["start", *places]


async def test_huge_file_is_unsupported(tmp_path):
    async with World(tmp_path).open() as world:
        world.file.write_bytes(b"x" * (2 * 1024 * 1024 + 1))
        is_error, text, _ = await world.define()
    assert (is_error, world.notes) == (False, [])
    assert text.splitlines()[1] == "Unsupported: 'a.go': 2097153 bytes are more than the 2097152 that are looked at"


async def test_missing_server_says_how_to_get_it(tmp_path):
    async with World(tmp_path).open() as world:
        (world.work / "a.kt").touch()
        is_error, text, _ = await world.define(file="a.kt")
    assert (is_error, text.splitlines()[1]) == (
        False,
        "Unsupported: the kotlin language server is not installed: install kotlin-lsp",
    )


@pytest.mark.parametrize(("line", "column"), [(4, 1), (99999, 99999), (10**400, 10**400), (3, 2**40)])
async def test_places_beyond_the_file_are_its_end(tmp_path, line, column):
    echo = """
    def ask(message):
        note(json.dumps(message["params"]["position"]))
        answer(message, [])
    """
    async with World(tmp_path, echo).open() as world:
        await world.define(line=line, column=column)
        wanted = {"line": 2, "character": 15} if line == 3 else {"line": 3, "character": 0}
        assert json.loads(world.notes[-1]) == wanted


@pytest.mark.parametrize("action", ["", "nope", "__init__", "definition.x"])
async def test_unknown_actions_are_told(tmp_path, action):
    async with World(tmp_path).open() as world:
        is_error, text, details = await world.ask(action, file="a.go")
        assert (is_error, details["error"]["code"]) == (True, "INVALID_INPUT")
        assert text.startswith(f"Unknown action '{action}'. Choose one of: definition, references,")
