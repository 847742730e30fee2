"""Hooks at a face, and what the models of its runs were told: shared by the tests of runs that are judged."""

import json
import shlex
import stat

DONE = {"text": "All done."}


def hook_file(folder, hooks):
    (folder / ".codingcode").mkdir(exist_ok=True)
    (folder / ".codingcode" / "hooks.yaml").write_text(json.dumps({"hooks": hooks}))


def make_hook(folder, name, point, answer="", *, notes, kind="decision"):
    """A hook that notes what it is told and answers always the same."""
    script = folder / f"{name}.sh"
    script.write_text(f"#!/bin/sh\ncat >> {shlex.quote(str(notes))}\necho {shlex.quote(answer)}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return {"name": name, "point": point, "type": kind, "command": str(script), "enabled": True}


def read_notes(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def was_said(world, text):
    return any(text in str(request.json) for request in world.server.requests)
