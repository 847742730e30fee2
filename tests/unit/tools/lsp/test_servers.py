import os
import sys
from pathlib import Path

import pytest

from retinue.tools.lsp.servers import SERVERS, find_command, find_root, find_server, resolve_server

IDS = ["dart", "typescript", "vue", "svelte", "python", "gopls", "kotlin", "swift", "rust-analyzer", "clangd"]


def put_program(folder: Path, name: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def find(name: str, work: Path, *folders: Path | str, **more) -> tuple[str, ...] | None:
    environment = {"PATH": os.pathsep.join(map(str, folders)), "HOME": str(work.parent / "home")}
    return find_command(resolve_server(name), environment, str(work), **more)


def test_ten_servers_are_known():
    assert [server.id for server in SERVERS] == IDS


@pytest.mark.parametrize(
    ("file", "server"),
    [
        ("a.py", "python"),
        ("A.PYI", "python"),
        ("x/b.tsx", "typescript"),
        ("c.h", "clangd"),
        ("d.txt", None),
        ("e", None),
    ],
)
def test_ending_names_server(file, server):
    found = find_server(file)
    assert (found.id if found else None) == server


@pytest.mark.parametrize(("word", "server"), [("pyright", "python"), (" Gopls ", "gopls"), ("emacs", None)])
def test_word_names_server(word, server):
    found = resolve_server(word)
    assert (found.id if found else None) == server


def test_program_is_found_on_path(tmp_path):
    program = put_program(tmp_path / "bin", "gopls")
    assert find("gopls", tmp_path / "work", tmp_path / "bin") == (program,)


def test_known_folder_of_home_counts(tmp_path):
    program = put_program(tmp_path / "home" / "go" / "bin", "gopls")
    assert find("gopls", tmp_path / "work") == (program,)


@pytest.mark.attack("F10")
def test_workspace_brings_no_program(tmp_path, monkeypatch):
    work = tmp_path / "work"
    program = put_program(work / "node_modules" / ".bin", "gopls")
    outside = tmp_path / "bin"
    outside.mkdir()
    (outside / "gopls").symlink_to(program)
    (tmp_path / "link").symlink_to(work)
    monkeypatch.chdir(work)
    inside = "node_modules/.bin"
    assert find("gopls", work, work / inside, inside, "", ".", outside, tmp_path / "link" / inside) is None


def test_own_interpreter_brings_ty(tmp_path, monkeypatch):
    work = tmp_path / "work"
    own = put_program(work / ".venv" / "bin", "ty")
    monkeypatch.setattr(sys, "executable", str(work / ".venv" / "bin" / "python"))
    put_program(work / ".venv" / "bin", "pyright-langserver")
    assert find("python", work) == (own, "server")


def test_wish_chooses_among_programs(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere" / "python"))
    bin = tmp_path / "bin"
    ty, pyright = put_program(bin, "ty"), put_program(bin, "pyright-langserver")
    work = tmp_path / "work"
    wished = [find("python", work, bin, preferred=name) for name in ("", "pyright", "basedpyright")]
    assert wished == [(ty, "server"), (pyright, "--stdio"), (ty, "server")]


def test_root_is_nearest_marker(tmp_path):
    work = tmp_path / "work"
    (work / "pkg" / "deep").mkdir(parents=True)
    (work / "pkg" / "go.mod").touch()
    server = resolve_server("gopls")
    roots = [find_root(server, str(work / name), str(work)) for name in ("pkg/deep/a.go", "b.go")]
    assert roots == [str(work / "pkg"), str(work)]


def test_root_is_inside_checkout(tmp_path):
    top = tmp_path / "top"
    work = top / "sub"
    work.mkdir(parents=True)
    (tmp_path / "go.mod").touch()
    server = resolve_server("gopls")
    assert find_root(server, str(work / "a.go"), str(work)) == str(work)
    (top / ".git").mkdir()
    assert find_root(server, str(work / "a.go"), str(work)) == str(work)
    (top / "go.mod").touch()
    assert find_root(server, str(work / "a.go"), str(work)) == str(top)
