import os
import sys
from pathlib import Path

import pytest

from retinue.core.errors import RetinueError
from retinue.core.model import ModelInfo
from retinue.engine.external.program import ProcessContext

INFO = ModelInfo(provider="p", id="m", api="own")


def make_program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_child_of_ours_is_this_python() -> None:
    assert ProcessContext({}, Path("/")).find_command("process", Path("/")) == [sys.executable, "-P", "-m", "retinue"]


def test_named_pi_is_the_one_that_is_started(tmp_path: Path) -> None:
    program = make_program(tmp_path / "pi")
    assert ProcessContext({}, tmp_path, str(program)).find_command("pi", tmp_path) == [str(program)]


def test_what_cannot_be_started_is_refused(tmp_path: Path) -> None:
    plain = make_program(tmp_path / "plain", 0o644)
    for path, words in (
        (plain, "not an executable program"),
        (tmp_path, "not an executable program"),
        (Path("bin/pi"), "a relative path"),
    ):
        with pytest.raises(RetinueError, match=words):
            ProcessContext({}, tmp_path, str(path)).find_command("pi", tmp_path)


@pytest.mark.parametrize("inside", ["work", "other"])
def test_programs_of_the_workspace_are_not_started(tmp_path: Path, inside: str) -> None:
    outside = make_program(tmp_path / "workshop" / "pi")
    folders = [str(make_program(tmp_path / inside / "bin" / "pi").parent), "bin", str(tmp_path / inside)]
    make_program(tmp_path / inside / "pi")
    work, other = tmp_path / "work", tmp_path / "other"
    path = os.pathsep.join([*folders, str(outside.parent)])
    process_context = ProcessContext({"PATH": path}, work)
    assert process_context.find_command("pi", other) == [str(outside)]
    assert process_context.build_environment(INFO, {}, other)["PATH"] == str(outside.parent)
    with pytest.raises(RetinueError, match="there is no program 'pi'"):
        ProcessContext({"PATH": os.pathsep.join(folders)}, work).find_command("pi", other)


def test_child_knows_one_key_and_its_marks(tmp_path: Path) -> None:
    process_context = ProcessContext(
        {"HOME": "/h", "OTHER_API_KEY": "secret", "PATH": "/usr/bin", "HTTPS_PROXY": "http://me:word@proxy"},
        tmp_path,
        marks={"A": "1", "B": "1"},
        export_key=lambda info: {f"{info.provider}_KEY": "k"},
        export_tools=lambda tools: {f"{tool}_KEY": "t" for tool in tools},
    )
    found = process_context.build_environment(INFO, {"B": "2"}, tmp_path, ["web"])
    own = {"HOME": "/h", "PATH": "/usr/bin", "PWD": str(tmp_path), "HTTPS_PROXY": "http://me:word@proxy"}
    assert found == {**own, "p_KEY": "k", "web_KEY": "t", "A": "1", "B": "2"}
    assert process_context.trusted is False
