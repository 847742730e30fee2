import pytest
from textual.app import App

from retinue.ui.widgets.status_lines import FooterFacts, StatusFooter

FACTS = {
    "folder": "~/projects/a-rather-long-name",
    "branch": "feature/first-hour",
    "model": "anthropic/claude-sonnet-4-5",
    "thinking": "medium",
    "input": 120_000,
    "output": 9_000,
    "cached": 80_000,
    "cost": 1.25,
    "percent": 41,
    "window": 200_000,
}


async def read_footer(width: int, **facts: str) -> str:
    class Screen(App[None]):
        def compose(self):
            yield StatusFooter()

    app = Screen()
    async with app.run_test(size=(width, 3)) as pilot:
        footer = app.query_one(StatusFooter)
        footer.show(FooterFacts(**{**FACTS, **facts}))
        await pilot.pause()
        return str(footer.render())


@pytest.mark.parametrize("mode", ["ask", "plan", "bypass"])
@pytest.mark.parametrize("status", ["", "3 agents running · press ctrl+c again to leave the program"])
@pytest.mark.parametrize("width", [80, 60, 40, 24])
async def test_approvals_stay_in_narrow_footers(width, mode, status):
    line = await read_footer(width, approvals=mode, status=status)
    assert (f"approvals: {mode}" in line, len(line) <= width) == (True, True), line


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (80, "$1.25 41%/200.0k approvals: ask anthropic/claude-sonnet-4-5 • medium"),
        (60, "approvals: ask anthropic/claude-sonnet-4-5 • medium"),
        (40, "approvals: ask anthropic/claude-son…"),
    ],
)
async def test_least_important_parts_go_first(width, line):
    assert (await read_footer(width, approvals="ask")).strip() == line
