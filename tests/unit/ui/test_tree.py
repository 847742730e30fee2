import pytest

from retinue.core.messages import Usage
from retinue.core.run import Run, Status
from retinue.ui.tree import TreeOptions, render_tree

ABOUT = "review the diff of the branch before it is merged"


def make_runs(count):
    facts = {"status": Status.RUNNING, "depth": 1, "started_ms": 1, "turns": 3, "tool_uses": 7}
    return [
        Run(id=f"r{n}", parent_id="", agent="Explore", description=ABOUT, usage=Usage(0, 0, 0, 0, 9000), **facts)
        for n in range(count)
    ]


def draw(count, width, **more):
    return [line.plain for line in render_tree(make_runs(count), TreeOptions(width, 5001, mode="compact", **more))]


@pytest.mark.parametrize(("most", "lines"), [(12, 12), (5, 5), (2, 2), (1, 0), (-3, 0)])
def test_tree_keeps_to_its_room(most, lines):
    drawn = draw(20, 80, most_lines=most)
    assert len(drawn) == lines
    assert not lines or drawn[-1] == f"└─ +{20 - (lines - 2)} more agents hidden"


def test_words_give_way_to_figures():
    wide, fair, narrow = (draw(1, width)[1] for width in (120, 70, 30))
    assert wide == f"└─ ⠋ Explore  {ABOUT} · ↻3 · 7 tools · 5.0s · 9.0k token"
    assert fair == "└─ ⠋ Explore  review the diff of t… · ↻3 · 7 tools · 5.0s · 9.0k token"
    assert narrow == "└─ ⠋ Explore  review the diff…"
