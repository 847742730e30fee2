import os
from collections import Counter
from pathlib import Path

import pytest

from retinue.core.definition import DeclaredTools
from retinue.definitions.discover import MARKDOWN, PARSERS, Listing, Root, load_root

# Files of our own that repeat what `scripts/real_agents.py` found in published packages.
COLLECTION = Path(__file__).parent.parent / "data" / "agents" / "collection"
FETCHED = os.environ.get("RETINUE_AGENTS_DIR", "")


def load(folder: Path) -> Listing:
    return load_root(Root(str(folder), "pi", "user", MARKDOWN), {})


@pytest.fixture(scope="module")
def listing() -> Listing:
    return load(COLLECTION)


def test_collection_is_honoured(listing: Listing) -> None:
    everything = ("read", "grep", "find", "ls", "bash", "edit", "write", "contact_supervisor")
    capitals = ("Read", "Write", "Bash", "Glob", "WebFetch", "mcp__docs__*")
    loaded = [found.definition for found in listing.files if found.definition is not None]
    assert {item.name: (item.enabled, item.model, item.thinking, item.tools) for item in loaded} == {
        "capitals": (True, None, None, DeclaredTools(capitals)),
        "colon": (True, None, None, DeclaredTools(("read", "grep"))),
        "denied": (True, "opus", None, DeclaredTools(denied=("Write", "Edit", "write", "edit"))),
        "external-runner": (False, None, None, DeclaredTools()),
        "performance-watcher": (True, None, None, DeclaredTools()),
        "worker": (True, None, "high", DeclaredTools(everything)),
    }


def test_collection_is_reported(listing: Listing) -> None:
    told = {Path(found.path).name: [(item.line, item.code) for item in found.diagnostics] for found in listing.files}
    assert told == {
        "NOTES.md": [(1, "no-frontmatter")],
        "capitals.md": [(4, "unknown-tool")] * 6,
        "colon.md": [(3, "yaml")],
        "denied.md": [(5, "unknown-key"), (6, "unknown-key"), (6, "unknown-tool"), (6, "unknown-tool")],
        "external-runner.md": [*((line, "unknown-key") for line in (9, 10, 11, 12)), (4, "field")],
        "performance-watcher.md": [(3, "unknown-key"), (4, "unknown-key"), (2, "name")],
        "worker.md": [*((line, "unknown-key") for line in (3, 6, 7, 9, 10)), (8, "unknown-tool")],
    }


# Agents, disabled ones among them, and files that are none, in the versions that scripts/interop.sh fetches.
PINNED = {
    "pi-subagents": (13, 6, 0),
    "get-shit-done-cc": (21, 0, 0),
    "oh-my-claude-sisyphus": (19, 0, 1),
    "claude-flow": (108, 0, 5),
}


def find_folders(package: str) -> list[Path]:
    top = Path(FETCHED) / package
    return sorted({path.parent for path in top.rglob("*.md") if "agents" in path.relative_to(top).parts[:-1]})


@pytest.mark.interop
@pytest.mark.skipif(not FETCHED, reason="RETINUE_AGENTS_DIR names no folder of fetched packages")
@pytest.mark.parametrize("package", PINNED)
def test_fetched_package_is_honoured(package: str) -> None:
    found = [item for folder in find_folders(package) for item in load(folder).files]
    loaded = [item.definition for item in found if item.definition is not None]
    disabled = [item for item in loaded if not item.enabled]
    assert (len(loaded), len(disabled), len(found) - len(loaded)) == PINNED[package]


@pytest.mark.interop
@pytest.mark.skipif(not FETCHED, reason="RETINUE_AGENTS_DIR names no folder of fetched packages")
def test_fetched_packages_are_read() -> None:
    folders = sorted({path.parent for path in Path(FETCHED).rglob("*.md") if path.parent.name == "agents"})
    found = [item for folder in folders for item in load(folder).files]
    silent = [item.path for item in found if item.definition is None and not item.diagnostics]
    unsafe = [
        item.path
        for item in found
        if item.definition is not None
        and item.definition.tools.names is None
        and any(line.startswith(("tools:", "allowed-tools:")) for line in Path(item.path).read_text().split("\n")[:30])
    ]
    assert (len(found) > 0, silent, unsafe) == (True, [], [])


# The reports on published agents of other tools: folder, agents, disabled ones, and what became of their fields.
REPORTS = {
    "get-shit-done-cc": ("claude", "agents", 21, 0, dict.fromkeys(("name", "description", "tools", "color"), "k21")),
    "claude-flow": (
        "claude", ".claude/agents", 108, 0,
        {"name": "k102 a6", "description": "k108", "tools": "k6 a7", "category": "i1", "type": "i1"},
    ),
    "oh-my-opencode": (
        "codex", "packages", 12, 0,
        {
            "name": "k12", "description": "k12", "developer_instructions": "k12", "model": "a12",
            "model_reasoning_effort": "k12", "nickname_candidates": "i12", "service_tier": "i2",
        },
    ),
}  # fmt: skip


@pytest.mark.interop
@pytest.mark.skipif(not FETCHED, reason="RETINUE_AGENTS_DIR names no folder of fetched packages")
@pytest.mark.parametrize("package", REPORTS)
def test_fetched_agents_of_other_tools_are_reported(package: str) -> None:
    dialect, folder, count, disabled, expected = REPORTS[package]
    suffix = "toml" if dialect == "codex" else "md"
    files = sorted((Path(FETCHED) / package / "package" / folder).rglob(f"*.{suffix}"))
    parsed = [
        PARSERS[dialect](path.read_text(encoding="utf-8"), str(path), "user")[0]  # type: ignore[index]
        for path in files
        if suffix == "md" or path.parent.name == "agents"
    ]
    found = [item for item in parsed if item is not None]
    counts = Counter((report.field, report.status[0]) for item in found for report in item.fields)
    told: dict[str, str] = {}
    for (field, status), number in sorted(counts.items(), key=lambda pair: "kai".index(pair[0][1])):
        told[field] = f"{told[field]} {status}{number}" if field in told else f"{status}{number}"
    assert (len(found), sum(not item.enabled for item in found), told) == (count, disabled, expected)
