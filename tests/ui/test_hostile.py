import json
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.text import Text
from textual.app import App
from textual.widgets import Static

from retinue.core.run import Question
from retinue.ui import blocks
from retinue.ui.conversation_blocks import ConversationBlocks
from retinue.ui.default_keys import KeyTable
from retinue.ui.driver import SafeText
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.widgets.conversation import Conversation
from retinue.ui.widgets.question import QuestionBox
from tests.ui.hostile_world import ALL, EVIL, UNSAFE, find_unsafe
from tests.ui.terminal_world import call

pytestmark = [pytest.mark.attack("H5"), pytest.mark.attack("H6")]


def make_blocks(text):
    """One block of each kind with a text in every place that has room for one."""
    report = {"description": text, "status": text, "resultPreview": text, "branch": text, "totalTokens": 5}
    return [
        blocks.UserBlock(text),
        blocks.ReplyBlock(text, text),
        blocks.ReplyBlock(text, "", is_live=True),
        blocks.ReplyBlock("", text, is_live=True),
        blocks.ReplyBlock("x", error=text),
        *(
            blocks.ToolBlock("1", name, {"path": text, "command": text}, "done", text)
            for name in (text, "bash", "read")
        ),
        blocks.ToolBlock("2", "edit", {"path": text}, "done", text, details={"diff": f"+{text}\n-{text}"}),
        blocks.ToolBlock("3", "Agent", {"subagent_type": text, "description": text}, "failed", text),
        *(blocks.NoteBlock(text, tone) for tone in ("info", "warning", "error")),
        blocks.ReportBlock([report, {**report, "error": text}], text),
        blocks.CommandBlock(text, text, 3),
        blocks.SummaryBlock(text),
        blocks.SummaryBlock(text, kind="branch"),
    ]


class Shown(App[None]):
    def __init__(self, made):
        super().__init__()
        self.talk = ConversationBlocks()
        self.talk.blocks, self.talk.version = made, 1
        self.safety = SafeText()

    def get_line_filters(self):
        return [*super().get_line_filters(), self.safety]

    def compose(self):
        yield Conversation(self.talk)

    def read(self):
        """The screen, line by line."""
        return ["".join(segment.text for segment in line) for line in self.screen._compositor.render_strips()]


@pytest.mark.parametrize("is_open", [False, True])
async def test_no_block_lets_anything_through(is_open):
    for text in ("\n\n".join(ALL[::2]), "\n\n".join(ALL[1::2]), EVIL):
        async with Shown(make_blocks(text)).run_test(size=(60, 400)) as pilot:
            pilot.app.query_one(Conversation).sync()
            pilot.app.query_one(Conversation).open_all(is_open=is_open)
            await pilot.pause()
            await pilot.pause()
            lines = pilot.app.read()
        assert [line for line in lines if UNSAFE.search(line)] == []
        assert max(cell_len(line) for line in lines) <= 60 and sum(bool(line.strip()) for line in lines) > 40


async def test_floods_do_not_hang_or_break_the_screen():
    floods = ["x" * 10_000_000, "\u200b" * 100_000, "e" + "\u0301" * 50_000, "\n" * 100_000]
    made = [make_blocks(text)[place] for text in floods for place in (1, 10)]
    async with Shown(made).run_test(size=(60, 20)) as pilot:
        pilot.app.query_one(Conversation).sync()
        await pilot.pause()
        for key in ("pageup", "home"):
            pilot.app.query_one(Conversation).focus()
            await pilot.press(key)
            await pilot.pause()
            lines = pilot.app.read()
            assert len(lines) == 20 and max(cell_len(line) for line in lines) <= 60


@pytest.mark.attack("SEC-9")
def test_no_byte_of_theirs_reaches_the_terminal(mocked, measure):
    quoted = json.dumps(EVIL.replace("\x00", ""))
    shell = f"printf '%s' {quoted!r}; python3 -c 'import json; print(json.loads({json.dumps(quoted)}))'; echo SHOWN1"
    evil = EVIL.replace("\x00", "")
    replies = [
        {"thinking": EVIL, "text": f"{EVIL} SHOWN0", "calls": [call("bash", command=shell), call(f"t{evil}", a=EVIL)]},
        {"calls": [call("Agent", prompt="go", description=evil, subagent_type="evil")], "text": "SHOWN2"},
        {"text": "SHOWN3"},
    ]
    child = {"match": {"last_user": "^go$"}, "text": f"{EVIL} child", "chunk_ms": 20, "chunk_chars": 40}
    parent = [{**reply, "match": {"last_user": "^begin$"}} for reply in replies]
    with mocked(*parent, child, {"error": {"kind": "auth", "message": f"{EVIL} SHOWN4"}}) as world:
        agents = world.agent_dir / "agents"
        agents.mkdir()
        front = {"name": "evil", "description": EVIL, "display_name": EVIL}
        (agents / "evil.md").write_text(f"---\n{json.dumps(front)}\n---\n\nGo.\n")
        with world.open(columns=120, rows=50) as terminal:
            terminal.wait_for("mock-1")
            terminal.type("begin\r")
            for sign in ("SHOWN0", "SHOWN1", "SHOWN3"):
                terminal.wait_for(sign)
            terminal.type(f"\x1b[200~{evil.replace(chr(27) + '[201~', '')}\x1b[201~")
            terminal.read(1.0)
            terminal.type("\r")
            terminal.read(1.0)
            terminal.type("/name \u202eevil\u200bSHOWN6\r")
            terminal.wait_for("SHOWN6")
            terminal.type("\x04\x03\x04")
            terminal.read(0.3)
    unsafe = find_unsafe(bytes(terminal.output))
    measure("SEC-9", "terminal UI", unsafe=len(unsafe), strings=len(ALL), places=8)
    assert unsafe == []


async def test_menus_and_notices_let_nothing_through():
    async with Shown([]).run_test(size=(80, 30)) as pilot:
        app = pilot.app
        app.notify(EVIL, title=EVIL, markup=False)
        app.push_screen(Picker(EVIL, [PickerRow("a", EVIL, EVIL, "●")], hint=EVIL))
        await pilot.pause()
        lines = app.read()
        app.push_screen(Panel(EVIL, Text(EVIL)))
        await pilot.pause()
        lines += app.read()
        app.push_screen(TextPrompt(EVIL, value=EVIL))
        await pilot.pause()
        lines += app.read()
    assert [line for line in lines if UNSAFE.search(line)] == [] and max(map(cell_len, lines)) <= 80


async def test_question_lets_nothing_through():
    class Asked(Shown):
        keys = KeyTable()
        link = SimpleNamespace(describe_run=lambda run_id: EVIL)

        def compose(self):
            yield type("Editor", (Static,), {}, can_focus=True)()
            yield QuestionBox()

    async with Asked([]).run_test(size=(80, 30)) as pilot:
        question = Question(id="1", run_id=EVIL, agent=EVIL, title=EVIL, text=EVIL, options=(EVIL, "no"), tool=EVIL)
        pilot.app.query_one(QuestionBox).show([question])
        await pilot.pause()
        lines = pilot.app.read()
    assert [line for line in lines if UNSAFE.search(line)] == [] and max(map(cell_len, lines)) <= 80


def test_title_of_the_terminal_is_not_theirs(mocked):
    with mocked({"text": "hello"}) as world:
        world.work = world.work / "evil\x1b]0;T\x07\u202edir"
        world.work.mkdir()
        with world.open() as terminal:
            terminal.wait_for("mock-1")
            terminal.type("go\r")
            terminal.wait_for("hello")
    assert find_unsafe(bytes(terminal.output)) == []
