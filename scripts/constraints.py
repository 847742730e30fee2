"""Prints uv.lock as pip constraints, so that a machine without uv gets the same versions."""

import tomllib
from collections import defaultdict
from pathlib import Path


def render_constraints(lock: str) -> str:
    """One `name==version` a line; a package locked at several versions is left to its markers."""
    versions: dict[str, set[str]] = defaultdict(set)
    for package in tomllib.loads(lock)["package"]:
        if "registry" in package["source"]:
            versions[package["name"]].add(package["version"])
    return "".join(f"{name}=={found.pop()}\n" for name, found in sorted(versions.items()) if len(found) == 1)


if __name__ == "__main__":
    root = Path(__file__).resolve().parent.parent
    print(render_constraints((root / "uv.lock").read_text(encoding="utf-8")), end="")
