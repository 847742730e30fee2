import pytest

from retinue.ui.screens.tree_picker import TreeRow, list_leaves


def say(entry_id, parent, role, text, **more):
    message = {"role": role, "content": [{"type": "text", "text": text}] if text else [], **more}
    return {"type": "message", "id": entry_id, "parentId": parent, "message": message}


def node(entry, *children, **label):
    return {"entry": entry, "children": list(children), **label}


def make_tree():
    """hello → agent → tool → (again | otherwise), with a change of the model in between."""
    again = node(say("e", "d", "user", "again"), node(say("f", "e", "assistant", "done")))
    other = node({"type": "model_change", "id": "g", "parentId": "d"}, node(say("h", "g", "user", "otherwise")))
    tool = node(say("d", "c", "toolResult", "boom", toolName="bash", isError=True), again, other)
    call = node(say("c", "b", "assistant", ""), tool)
    reply = node(say("b", "a", "assistant", "I look."), call, label="here\x1b", labelTimestamp="2026-01-02T03:04:05Z")
    return [node(say("a", None, "user", "hello\nthere"), reply)]


def draw(leaf):
    return f"{'  ' * leaf.indent}{'>' if leaf.begins else ''}{leaf.text}{'*' if leaf.is_present else ''}"


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        (
            "default",
            [">hello there*", "agent: I look.*", "✗ bash: boom*", "  >again", "  agent: done", "  >otherwise*"],
        ),
        ("noTools", [">hello there*", "agent: I look.*", "  >again", "  agent: done", "  >otherwise*"]),
        ("userOnly", [">hello there*", "  >again", "  >otherwise*"]),
        ("labeledOnly", [">agent: I look.*"]),
    ],
)
def test_tree_shows_what_is_wanted(wanted, rows):
    assert [draw(leaf) for leaf in list_leaves(make_tree(), "h", wanted=wanted)] == rows


def test_everything_is_everything():
    assert [leaf.entry_id for leaf in list_leaves(make_tree(), "h", wanted="all")] == list("abcdefgh")


def test_folded_branch_counts_what_it_hides():
    rows = list_leaves(make_tree(), "h", folded={"e"})
    assert [(leaf.entry_id, leaf.folded) for leaf in rows[-2:]] == [("e", 1), ("h", 0)]


def test_mark_is_shown_safely():
    assert list_leaves(make_tree(), "h")[1] == TreeRow(
        "b", "agent: I look.", False, "here\\x1b", "2026-01-02 03:04", is_present=True
    )


def test_long_chain_is_no_recursion():
    chain = node(say("0", None, "user", "0"))
    last = chain
    for number in range(1, 5000):
        last["children"] = [node(say(str(number), str(number - 1), "user", str(number)))]
        last = last["children"][0]
    assert len(list_leaves([chain], "4999")) == 5000


@pytest.mark.parametrize(
    "entry", [{"type": "message", "message": 3}, {"type": "x" * 500}, {"message": {"content": [3]}}]
)
def test_strange_entries_are_shown(entry):
    assert len(list_leaves([node({"id": "a", "parentId": "nobody", **entry})], None, wanted="all")) == 1


@pytest.mark.parametrize(("summary", "text"), [("Always this.\n\n## Goal\nTwo.", "Goal Two."), ("Short.", "Short.")])
def test_summary_is_shown_without_its_first_sentence(summary, text):
    entry = {"type": "branch_summary", "id": "s", "parentId": None, "summary": summary}
    assert [leaf.text for leaf in list_leaves([node(entry)], "s")] == [f"branch summary: {text}"]
