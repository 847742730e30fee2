import json
import sys


def test_programs_see_what_was_called(place):
    answer = json.dumps({"modifiedInput": {"path": "b<i>.txt"}})
    hook = {"name": "fixer", "point": "tool.approval.pre", "type": "decision", "command": sys.executable,
            "args": ["-c", f"print({answer!r})"], "enabled": True}  # fmt: skip
    folder = place.home / ".codingcode"
    folder.mkdir()
    (folder / "hooks.yaml").write_text(json.dumps({"hooks": [hook]}))
    (place.work / "b<i>.txt").write_text("second")
    replies = [{"calls": [{"name": "read", "arguments": {"path": "a.txt"}}]}, {"text": "Done."}]
    done = place.run("--mode", "json", "-p", "Look", replies=replies)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    told = {each["type"]: each for each in records if each["type"].startswith("tool_execution")}
    change = {"modifiedInput": {"by": ["fixer"], "args": {"path": "b<i>.txt"}}}
    assert told["tool_execution_start"]["args"] == {"path": "a.txt"}
    assert told["tool_execution_update"]["args"] == {"path": "b<i>.txt"}
    assert told["tool_execution_update"]["partialResult"] == {"content": [], "details": change}
    assert told["tool_execution_end"]["result"] == {"content": [{"type": "text", "text": "second"}], "details": change}
    page = (place.work / place.run("export").stdout.strip()).read_text()
    assert "arguments changed by fixer" in page and "b&lt;i&gt;.txt" in page
