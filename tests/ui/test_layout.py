import pytest
from rich.cells import cell_len

from retinue.core.run import Run, Status
from retinue.ui.screens.panel import Panel
from retinue.ui.screens.picker import Picker, PickerRow
from retinue.ui.screens.prompt import TextPrompt
from retinue.ui.screens.viewer import RunViewer
from retinue.ui.widgets.agent_list import AgentList
from tests.ui.pilot_world import open_stage

MORE = [(20, 40), (80, 24), (150, 8), (300, 100)]
LOW_ROWS = 10
"""Below so many rows there is no room for the list."""
SIZES = [(20, 5), (37, 12), *(pytest.param(each, marks=pytest.mark.slow) for each in MORE)]
WIDE = "宽字符 文字 " * 12
REPLIES = [
    {
        "thinking": "Hm.\n" * 9,
        "text": f"# Head\n\n{WIDE}\n\n| a | b |\n|---|---|\n| 1 | {'x' * 90} |\n\n```python\nx = {'1' * 120}\n```",
        "calls": [{"name": "bash", "arguments": {"command": "seq 40; echo " + "y" * 200}}],
    },
    {"text": f"done {WIDE}"},
]
RUNS = [
    Run(id=f"r{n}", parent_id="", agent="Explore", description=WIDE, status=Status.RUNNING, depth=1, started_ms=1)
    for n in range(15)
]


def read(app):
    return ["".join(segment.text for segment in line) for line in app.screen._compositor.render_strips()]


def check(app, size):
    lines = read(app)
    assert len(lines) == size[1] and {cell_len(line) for line in lines} == {size[0]}


@pytest.mark.parametrize("size", SIZES)
async def test_every_screen_fits(tmp_path, monkeypatch, size):
    monkeypatch.chdir(tmp_path)
    async with open_stage(tmp_path, *REPLIES, size=size) as stage:
        stage.app.theme = "retinue-light" if size[0] % 2 else "retinue-dark"
        await stage.write("go")
        await stage.press("enter")
        await stage.rest()
        monkeypatch.setattr("retinue.views.runs.SessionRuns.runs", RUNS)
        stage.app.link.touch()
        await stage.wait(lambda: stage.app.screen.query_one(AgentList).display or size[1] < LOW_ROWS)
        await stage.press("ctrl+o")
        check(stage.app, size)
        for screen in (
            Picker(WIDE, [PickerRow(str(n), WIDE, WIDE) for n in range(30)]),
            Panel(WIDE, WIDE * 20),
            TextPrompt(WIDE, value=WIDE, is_long=True),
            RunViewer(RUNS[0]),
        ):
            stage.app.push_screen(screen)
            await stage.pilot.pause()
            check(stage.app, size)
            stage.app.pop_screen()


def find_places(app):
    """Where everything of the main screen is."""
    return [(each.id, each.region) for each in app.screen_stack[0].query("#bottom, #bottom > *") if each.display]


async def test_what_lies_below_a_panel_is_laid_out_anew(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("retinue.views.runs.SessionRuns.runs", RUNS)
    async with open_stage(tmp_path) as stage:
        await stage.wait(lambda: stage.app.screen.query_one(AgentList).display)
        footer = stage.app.screen.query_one("#footer")
        for size in ((20, 10), (140, 50), (60, 20)):
            stage.app.push_screen(Panel("Report", "words"))
            await stage.pilot.resize_terminal(*size)
            await stage.wait(lambda size=size: (footer.region.bottom, footer.size.height) == (size[1], 1))
            await stage.pilot.pause(0.2)
            covered = find_places(stage.app)
            stage.app.pop_screen()
            await stage.pilot.pause(0.2)
            assert find_places(stage.app) == covered
