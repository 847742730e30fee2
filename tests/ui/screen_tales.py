"""What is said and done on the screens that are compared: one conversation, and crews of several sizes."""

from retinue.core.messages import (
    AssistantMessage,
    Cost,
    CustomMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from retinue.core.run import Outcome, Question, Reason, Run, Status
from tests.ui.screen_world import NOW_MS

USAGE = Usage(12_400, 830, 8_000, 0, 21_230, Cost(total=0.042))
WORDS = """## What writes sessions

`Session.append_message` writes one line and gives its id back; a failure leaves the line out.

1. **Writing** is in `log.py`
2. **Reading back** is in `scan.py`, which never stops early

| file | lines | what it does |
|---|---|---|
| log.py | 465 | appends, never rewrites |
| scan.py | 221 | finds every entry once |

```python
def append(message: Message) -> str:
    return self._write(message, sync=True)  # on disk, or raised
```

> A torn end is moved aside. See https://example.org/docs/sessions for more.
"""
DIFF = "  1 def close(self):\n- 2     self.file.close()\n+ 2     self.file.flush()\n+ 3     self.file.close()\n  4"
PATHS = "\n".join(f"src/sessions/{name}.py" for name in ("history", "lock", "log", "scan", "store", "tree", "view"))


def say(text):
    return UserMessage(text, NOW_MS)


def reply(text="", *calls, thinking="", error="", stop="stop"):
    content = [*([ThinkingContent(thinking)] if thinking else []), *([TextContent(text)] if text else []), *calls]
    more = {"error_message": error} if error else {}
    return AssistantMessage(content, "openai-completions", "local", "a-model", USAGE, stop, NOW_MS, **more)


def answer(call, text, *, is_error=False, details=None):
    more = {} if details is None else {"details": details}
    return ToolResultMessage(call.id, call.name, [TextContent(text)], is_error, NOW_MS, **more)


FIND = ToolCall("c1", "find", {"pattern": "*.py", "path": "src/sessions"})
EDIT = ToolCall("c2", "edit", {"path": "src/sessions/log.py"})
TEST = ToolCall("c3", "bash", {"command": "make test args=tests/unit/sessions"})
SPAWN = ToolCall("c4", "Agent", {"subagent_type": "Explore", "description": "follow the readers", "prompt": "Look."})
REPORT = CustomMessage(
    "subagent-notification",
    "<task-notification/>",
    True,
    NOW_MS,
    details={
        "id": "a1b2c3d4e5f6a7b8c", "description": "follow the readers", "status": "completed", "toolUses": 7,
        "turnCount": 5, "maxTurns": 30, "totalTokens": 33_800, "durationMs": 72_300,
        "resultPreview": "Three places read sessions back:\n- scan.py finds the entries\n- view.py makes messages",
    },
)  # fmt: skip
TALK = (
    say("Where are sessions written, and what happens when a write fails?"),
    reply("I look at it from two sides.", FIND, SPAWN, thinking="Two searches can go side by side.\nThen I compare."),
    answer(FIND, PATHS),
    answer(SPAWN, "Agent started in background.", details={"status": "background", "agentId": "a1b2c3d4e5f6a7b8c"}),
    reply("", EDIT, TEST),
    answer(EDIT, "Applied 1 edit to src/sessions/log.py", details={"diff": DIFF}),
    answer(TEST, "42 passed in 1.23s"),
    REPORT,
    reply(WORDS),
)
BRANCHED = (
    say("Which buffer holds the log?"),
    reply("The ring."),
    say("Make it twice as long."),
    reply("", EDIT),
    answer(EDIT, "Applied 1 edit to src/sessions/log.py"),
    reply("It holds 2,000 lines now."),
)
OTHER_WAY = (say("Leave it, and write to a file instead."), reply("A file it is."))
TROUBLE = (
    say("Run the tests and repair what fails."),
    reply("I begin with the tests.", TEST),
    answer(TEST, "make: *** No rule to make target 'test'.  Stop.\nexit code 2", is_error=True),
    reply("", stop="error", error="401 Unauthorized: the key of local was refused. Set LOCAL_KEY, or use /model."),
)


def run(number, agent="Explore", what="find the writers", status=Status.RUNNING, parent="", depth=1, **facts):
    """A run that began some seconds ago, with figures that follow from its number."""
    begun = 0 if status is Status.QUEUED else NOW_MS - 1000 * (7 * number + 5)
    figures = {
        "turns": number % 6 + 1, "tool_uses": 2 * number, "context_tokens": 15_000 * number,
        "usage": Usage(11_000 * number, 900 * number, 0, 0, 11_900 * number), "activity": "grep",
        "invocation": {"maxTurns": 30},
    }  # fmt: skip
    figures = {} if status is Status.QUEUED else figures
    return Run(
        id=f"{number:017x}", parent_id=parent, depth=depth, agent=agent, description=what, status=status,
        queued_ms=NOW_MS - 90_000, started_ms=begun, is_background=True, **{**figures, **facts},
    )  # fmt: skip


def end(number, status=Status.COMPLETED, reason=Reason.DONE, error="", **facts):
    outcome = Outcome(status, reason, text="Found three of them.", error=error)
    return run(number, status=status, finished_ms=NOW_MS - 2000, outcome=outcome, **facts)


ONE = [run(3, activity="read")]
TWELVE = [
    *(run(n, agent, what) for n, (agent, what) in enumerate(
        [("Explore", "find the writers"), ("Explore", "follow the readers"), ("Plan", "plan a test of full disks"),
         ("general-purpose", "rename Store to Shelf everywhere"), ("Explore", "look for locks"),
         ("reviewer", "review the diff of the branch before it is merged into main")], 1)),
    run(7, "Explore", "wait for a slot", Status.QUEUED), run(8, "Explore", "wait, too", Status.QUEUED),
    end(9, what="list the flags"), end(10, what="wrap up in time", reason=Reason.TURN_LIMIT_WRAPPED),
    end(11, Status.FAILED, Reason.ERROR, "overloaded_error: try again later", what="ask a busy model"),
    end(12, Status.STOPPED, Reason.USER, what="stopped by hand"),
]  # fmt: skip
NESTED = [
    run(1, "general-purpose", "make the release"),
    run(2, "Plan", "plan the steps", parent=f"{1:017x}", depth=2),
    run(3, "Explore", "look at the changelog", parent=f"{2:017x}", depth=3, activity="bash"),
    run(4, "Explore", "look at the tags", parent=f"{2:017x}", depth=3, compactions=1),
    end(5, what="read the rules", parent=f"{1:017x}", depth=2),
    run(6, "Explore", "wait for a slot", Status.QUEUED, parent=f"{1:017x}", depth=2),
    run(14, "reviewer", "review what was done", context_tokens=180_000),
]
COMMAND = "git push --force-with-lease origin main \\\n  && gh release create v2.0.0 --notes-file CHANGES.md"
ASKED = [
    Question(id="q1", run_id=f"{3:017x}", agent="Explore", title="bash wants to run a command", text=COMMAND,
             options=("allow once", "allow always", "deny"), default="deny", tool="bash"),
    Question(id="q2", run_id="main", title="edit wants to change a file", text="src/app.py"),
]  # fmt: skip
INSIDE = (
    say("Look for everything that writes sessions. Report with file:line."),
    reply("I search for the writers first.", FIND, thinking="Where to begin?"),
    answer(FIND, PATHS),
    reply("There are **two** writers: `log.py:190` appends messages, `store.py:41` writes the bytes."),
)
