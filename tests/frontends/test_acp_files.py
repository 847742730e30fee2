"""`retinue acp` with the files of an editor: unsaved text is seen, and nothing is lost on the way."""

import os

import pytest

from tests.frontends.test_acp import EDIT, Editor, connect, end_turn

READ = {"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}


@pytest.mark.parametrize(
    ("stored", "shown", "expected"),
    [
        (b"one caf\xe9\n", "one caf\ufffd\n", b"two caf\xe9\n"),
        (b"\xef\xbb\xbfone\n", "one\n", b"\xef\xbb\xbftwo\n"),
        (b"one\r\nrest\r\n", "one\nrest\n", b"two\r\nrest\r\n"),
    ],
)
async def test_bytes_an_editor_would_change_survive(place, stored, shown, expected):
    path, editor = place.work / "a.txt", Editor()
    path.write_bytes(stored)
    editor.unsaved[str(path)] = shown
    async with connect(place, EDIT, {"text": "done"}, editor=editor, files=True) as link:
        await end_turn(link, place, "change it")
    assert path.read_bytes() == expected


async def test_file_outside_the_workspace_is_not_saved(place):
    path, editor = place.root / "other.txt", Editor()
    path.write_text("one\n")
    editor.unsaved[str(path)] = "one unsaved\n"
    call = {"name": "edit", "arguments": {"path": str(path), "edits": [{"oldText": "one", "newText": "two"}]}}
    async with connect(place, {"calls": [call]}, {"text": "done"}, editor=editor, files=True) as link:
        await end_turn(link, place, "change it")
    assert (path.read_text(), editor.saved) == ("one\n", [])


async def test_text_that_cannot_be_saved_stops_the_change(place):
    path, editor = place.work / "a.txt", Editor()
    path.write_text("one\n")
    editor.unsaved[str(path)] = "one unsaved\n"
    async with connect(place, READ, EDIT, {"text": "done"}, editor=editor, files="read") as link:
        await end_turn(link, place, "change it")
    first, last = [each for each in editor.list("tool_call_update") if "status" in each]
    assert first["content"][0]["content"]["text"] == "one unsaved\n"
    assert last["status"] == "failed" and "unsaved changes" in last["content"][0]["content"]["text"]
    assert path.read_text() == "one\n"


async def test_pipe_is_not_waited_for(place):
    os.mkfifo(place.work / "a.txt")
    async with connect(place, EDIT, {"text": "done"}, files=True) as link:
        await end_turn(link, place, "change it")
    assert link.editor.list("tool_call_update")[-1]["status"] == "failed"


async def test_unsaved_text_is_the_old_side_of_the_diff(place):
    path, editor = place.work / "a.txt", Editor()
    path.write_text("old\n")
    editor.unsaved[str(path)] = "one unsaved\n"
    async with connect(place, EDIT, {"text": "done"}, editor=editor, files=True) as link:
        await end_turn(link, place, "change it")
    [diff] = editor.list("tool_call_update")[-1]["content"]
    assert (diff["oldText"], diff["newText"]) == ("one unsaved\n", "two unsaved\n")
