"""Runs the program with a scripted model and prints what ran before the first request, and how deep a child's is.

The last line is a JSON object: `files` (ours, with executed function code, before the first model request) and `frames`
(of ours, at the first request of a child that the main agent starts).
"""

import inspect
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

SOURCE = str(Path(__file__).resolve().parent.parent / "src" / "retinue")
MODEL = os.path.join(SOURCE, "models", "scripted.py")
AGENT: dict[str, Any] = {
    "name": "Agent",
    "arguments": {"subagent_type": "Explore", "description": "look", "prompt": "Where is it?"},
}
CHILD = {"match": {"last_user": AGENT["arguments"]["prompt"]}, "text": "Here."}
REPLIES = [CHILD, {"calls": [AGENT]}, {"text": "Done."}, {"text": "Done."}]


class Trace:
    """Listens to all calls of all threads."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.depths: dict[bool, int] = {}
        """At the first request of the main agent (False) and of its child (True)."""

    def hear(self, frame: FrameType, event: str, argument: Any) -> None:
        """Note a call: the file before the first request, the depth at each."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(SOURCE) or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if code.co_filename == MODEL and code.co_name == "reply":
            is_child = AGENT["arguments"]["prompt"] in str(frame.f_locals["request"].messages[1])
            self.depths.setdefault(is_child, count_frames(frame))
        elif not self.depths:
            self.files.add(code.co_filename)


def count_frames(frame: FrameType | None) -> int:
    """How many frames of ours there are, with this one."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith(SOURCE)
        frame = frame.f_back
    return count


def main() -> None:
    """Run the program once."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.json")
        script.write_text(json.dumps({"replies": REPLIES}))
        os.environ.update(HOME=folder, PI_CODING_AGENT_DIR=folder, RETINUE_NO_LOCAL="1")
        os.chdir(folder)
        threading.setprofile(trace.hear)
        sys.setprofile(trace.hear)
        from retinue.cli.main import main as run

        run(["-p", "--no-session", "--model", f"scripted/{script}", "Begin."])
        sys.setprofile(None)
    print(json.dumps({"files": len(trace.files), "frames": trace.depths[True]}))


if __name__ == "__main__":
    main()
