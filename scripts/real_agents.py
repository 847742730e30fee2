"""Load the agent files that npm packages ship, as they are, and print what was honoured and what was reported.

    .venv/bin/python scripts/real_agents.py [package ...]

Packages are fetched with `npm pack` into .cache/agents and only unpacked: nothing of them is run.
"""

import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path

from retinue.core.tool_table import KNOWN_TOOLS
from retinue.definitions.discover import MARKDOWN, Root, load_root

CACHE = Path(__file__).resolve().parent.parent / ".cache" / "agents"
PACKAGES = ("pi-subagents", "@tintinweb/pi-subagents", "get-shit-done-cc", "oh-my-claude-sisyphus", "claude-flow")


def fetch(package: str) -> Path:
    """The unpacked package; fetched once."""
    folder = CACHE / package.replace("/", "+")
    if not folder.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["npm", "pack", "--silent", "--pack-destination", str(CACHE), package]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        archive = CACHE / done.stdout.split()[-1]
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    return folder


def report(folder: Path) -> None:
    """Print what loading every `agents` directory below a folder gives."""
    roots = sorted({path.parent for path in folder.rglob("*.md") if "agents" in path.relative_to(folder).parts[:-1]})
    loaded, codes, errors = [], Counter[str](), []
    for root in roots:
        listing = load_root(Root(str(root), "pi", "user", MARKDOWN), KNOWN_TOOLS, {})
        for found in listing.files:
            loaded.extend([found.definition] if found.definition else [])
            codes.update(item.code for item in found.diagnostics)
            errors.extend(item.message for item in found.diagnostics if item.severity == "error")
    readonly = sum(item.readonly for item in loaded)
    disabled = sum(not item.enabled for item in loaded)
    print(
        f"{folder.name}: {len(loaded)} agents, {readonly} read-only, {disabled} disabled; {dict(codes.most_common())}"
    )
    for message in errors[:10]:
        print("  " + message.replace(f"{folder}/", "")[:200])


def main() -> None:
    """Report on the named packages, or on the usual ones."""
    for package in sys.argv[1:] or PACKAGES:
        report(fetch(package))


if __name__ == "__main__":
    main()
