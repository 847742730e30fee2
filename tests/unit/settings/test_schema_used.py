import ast
import re
import shutil
import subprocess
import sys
from functools import reduce
from pathlib import Path

import pytest

import retinue
from retinue.settings.schema import SETTINGS, Settings
from retinue.settings.subagents import SUBAGENT_SETTINGS, SubagentsConfig

SOURCE = Path(retinue.__file__).parent
DECLARED = ("settings/schema.py", "settings/subagents.py", "settings/devkit.py", "sandbox/profile.py")
SHOWN = ("settings/doctor_report.py", "views/toolkit.py", "settings/preferences.py")
"""What shows settings to a person and acts on none."""
READ = re.compile(r"^(\S+?):\d+:\d+: error\[[\w-]+\] .*?`(?:Self@)?(\w+)` has no attribute `(\w+)`", re.M)


def find_place(holder, field):
    *sections, name = field.split(".")
    return type(reduce(getattr, sections, holder)).__name__, name


def list_declared():
    places = {find_place(Settings(), item.field): item.key for item in SETTINGS}
    return places | {find_place(SubagentsConfig(), item.field): item.key for item in SUBAGENT_SETTINGS}


def remove_fields(path, places):
    """Take the declarations of settings out of a file, so that a type checker reports whoever reads one.

    Gives the class of each method: that is how the checker names `self`.
    """
    methods = {}
    lines = path.read_text().splitlines()
    for kind in ast.walk(ast.parse(path.read_text())):
        for node in kind.body if isinstance(kind, ast.ClassDef) else ():
            if isinstance(node, ast.AnnAssign) and (kind.name, node.target.id) in places:
                lines[node.lineno - 1 : node.end_lineno] = ["    pass"] + [""] * (node.end_lineno - node.lineno)
            elif isinstance(node, ast.FunctionDef):
                methods[node.name] = kind.name
    path.write_text("\n".join(lines))
    return methods


@pytest.mark.timeout(180)
def test_every_setting_is_read(tmp_path):
    places = list_declared()
    shutil.copytree(SOURCE, tmp_path / "retinue", ignore=shutil.ignore_patterns("__pycache__"))
    kinds = {}
    for name in DECLARED:
        kinds |= remove_fields(tmp_path / "retinue" / name, places)
    command = [Path(sys.executable).parent / "ty", "check", "--output-format", "concise", "--python", sys.prefix]
    found = subprocess.run([*command, "retinue"], cwd=tmp_path, capture_output=True, text=True, timeout=170)
    read = {
        (kinds.get(kind, kind), name) for file, kind, name in READ.findall(found.stdout) if not file.endswith(SHOWN)
    }
    assert read, found.stdout + found.stderr
    unread = sorted(key for place, key in places.items() if place not in read)
    assert not unread, f"declared, and read by nothing: {', '.join(unread)}"
