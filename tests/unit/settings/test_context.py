import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from retinue.core.errors import UsageError
from retinue.settings.context import MAX_CONTEXT_BYTES, PromptFiles, TextFile, load_prompt_files
from retinue.settings.paths import Paths, find_paths


@pytest.fixture
def paths(tmp_path: Path, agent_dir: Path) -> Paths:
    (tmp_path / "top" / "project" / ".pi").mkdir(parents=True)
    (tmp_path / "top" / "project" / "sub").mkdir()
    return find_paths(tmp_path / "top" / "project" / "sub", os.environ)


def put(path: Path, content: str | bytes) -> TextFile:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return TextFile(str(path), path.read_text(errors="replace"))


def load(paths: Paths, **options: Any) -> PromptFiles:
    return load_prompt_files(paths, **{"trusted": False, **options})


def test_context_goes_from_general_to_special(paths: Paths) -> None:
    expected = (
        put(paths.agent_dir / "CLAUDE.md", "user"),
        put(paths.project.parent / "AGENTS.md", "top"),
        put(paths.project / "AGENTS.MD", "project"),
        put(paths.cwd / "CLAUDE.MD", "sub"),
    )
    assert load(paths) == PromptFiles(expected)
    assert load(paths, use_context=False) == PromptFiles()


def test_one_file_counts_in_each_folder(paths: Paths) -> None:
    put(paths.cwd / "CLAUDE.md", "c")
    agents = put(paths.cwd / "AGENTS.md", "a")
    project = put(paths.project / "AGENTS.md", "p")
    assert load(paths).context == (project, agents)
    override = put(paths.cwd / "AGENTS.override.md", "o")
    assert load(paths).context == (project, override)


def test_what_is_no_text_is_skipped(paths: Paths) -> None:
    (paths.cwd / "AGENTS.override.md").mkdir()
    os.mkfifo(paths.cwd / "AGENTS.md")
    put(paths.cwd / "AGENTS.MD", b"a\0b")
    used = put(paths.cwd / "CLAUDE.md", "c")
    found = load(paths)
    assert (found.context, [item.code for item in found.diagnostics]) == (
        (used,),
        ["unreadable", "unreadable", "binary"],
    )


def test_long_file_is_cut_and_says_so(paths: Paths) -> None:
    put(paths.cwd / "AGENTS.md", "é" * MAX_CONTEXT_BYTES)
    found = load(paths)
    assert found.context[0].text.startswith("é" * (MAX_CONTEXT_BYTES // 2) + "\n\n[cut here:")
    assert [item.code for item in found.diagnostics] == ["truncated"]


def test_wrong_bytes_are_kept_visible(paths: Paths) -> None:
    put(paths.cwd / "AGENTS.md", b"caf\xe9")
    found = load(paths)
    assert (found.context[0].text, [item.code for item in found.diagnostics]) == ("caf\ufffd", ["encoding"])


def test_byte_order_mark_is_removed(paths: Paths) -> None:
    put(paths.cwd / "AGENTS.md", b"\xef\xbb\xbfx")
    assert load(paths).context[0].text == "x"


def test_project_prompt_needs_trust(paths: Paths) -> None:
    for folder in (paths.agent_dir, paths.project / ".pi"):
        put(folder / "SYSTEM.md", f"system {folder.name}")
        put(folder / "APPEND_SYSTEM.md", f"append {folder.name}")
    paths = structs.replace(paths, configs=(".pi",))
    assert load(paths) == PromptFiles((), "system agent", ("append agent",))
    assert load(paths, trusted=True) == PromptFiles((), "system .pi", ("append .pi",))


@pytest.mark.attack("I2")
@pytest.mark.parametrize("git", [False, True])
def test_files_above_are_ones_own(paths: Paths, monkeypatch: pytest.MonkeyPatch, git: bool) -> None:
    top, project = put(paths.project.parent / "AGENTS.md", "top"), put(paths.project / "AGENTS.md", "project")
    here = put(paths.cwd / "AGENTS.md", "here")
    if git:
        (paths.project / ".git").mkdir()
    uid = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    found = load(paths)
    refused = [Path(item.path).parent for item in found.diagnostics]
    assert found.context == ((project, here) if git else (here,))
    assert refused == [Path(each.path).parent for each in ((top,) if git else (top, project))]


def test_flags_replace_prompt_files(paths: Paths) -> None:
    put(paths.agent_dir / "SYSTEM.md", "file")
    put(paths.agent_dir / "APPEND_SYSTEM.md", "file")
    put(paths.cwd / "p.md", "from a file")
    found = load(paths, system="p.md", append=["be brief", "p.md"])
    assert found == PromptFiles((), "from a file", ("be brief", "from a file"))
    assert load(paths, system="").system == ""


@pytest.mark.parametrize(
    "text", ["line\nline", "x" * 5000, "a/" * 2000, "no such file", "a\0b", "~nobody/x", "é" * 300]
)
def test_text_that_names_no_file_is_text(paths: Paths, text: str) -> None:
    assert load(paths, system=text).system == text


def test_flag_with_unusable_file_is_refused(paths: Paths) -> None:
    put(paths.cwd / "binary", b"\0")
    with pytest.raises(UsageError, match="--system-prompt: 'binary' is a binary file"):
        load(paths, system="binary")
    with pytest.raises(UsageError, match=r"--append-system-prompt: .* is a directory"):
        load(paths, append=[str(paths.project)])


def test_imports_of_claude_files_are_read(paths: Paths) -> None:
    (paths.cwd / "CLAUDE.md").write_text(
        "See @docs/style.md and `@docs/no.md`, mail a@b.md\n```\n@docs/no.md\n```\n@.env @../x.md"
    )
    (paths.cwd / "docs").mkdir()
    (paths.cwd / "docs" / "style.md").write_text("Style. @more.md @style.md")
    (paths.cwd / "docs" / "more.md").write_text("More.")
    for name in ("docs/no.md", ".env", "../x.md", "b.md"):
        (paths.cwd / name).write_text("no")
    (paths.cwd / "docs" / "out.md").symlink_to("/etc/hostname")
    found = load_prompt_files(paths, trusted=False).context
    names = [Path(file.path).name for file in found if str(paths.cwd) in file.path]
    assert names == ["CLAUDE.md", "style.md", "more.md"]


def test_other_context_files_import_nothing(paths: Paths) -> None:
    (paths.cwd / "AGENTS.md").write_text("@b.md")
    (paths.cwd / "b.md").write_text("no")
    assert [Path(file.path).name for file in load_prompt_files(paths, trusted=False).context] == ["AGENTS.md"]
