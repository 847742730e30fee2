"""Finds the Python environment of a project from variables and files; runs nothing."""

import base64
import hashlib
import os
import sys
from collections.abc import Iterator, Mapping
from glob import escape, glob
from pathlib import Path

from retinue.sandbox.gitdirs import read_git_dirs

_INTERPRETERS = ("bin/python", "Scripts/python.exe", "python.exe")
_MARKS = ("pyvenv.cfg", "conda-meta")


def find_environment(root: str, top: str, variables: Mapping[str, str]) -> str:
    """Return the folder of the environment; empty if there is none.

    `root` is the project's directory, `top` the checkout that contains it.
    """
    return next((folder for folder in _list_folders(root, top, variables) if _is_environment(folder)), "")


def find_interpreter(folder: str) -> str:
    paths = (os.path.join(folder, *name.split("/")) for name in _INTERPRETERS)
    return next((path for path in paths if os.path.isfile(path)), "")


def activate(folder: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return variables with only this environment active."""
    kept = {name: value for name, value in variables.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    is_conda = os.path.isdir(os.path.join(folder, "conda-meta"))
    return {**kept, "CONDA_PREFIX" if is_conda else "VIRTUAL_ENV": folder}


def _list_folders(root: str, top: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield candidates: those of the project, then active ones, then those made elsewhere for the project."""
    folders = [
        str(each) for each in (Path(root), *Path(root).parents) if each == Path(root) or each.is_relative_to(top)
    ]
    git = read_git_dirs(top)
    if git.is_linked and os.path.basename(git.common) == ".git":
        # A linked worktree usually has no environment of its own, so look in the main worktree too.
        main = os.path.dirname(git.common)
        folders += [os.path.normpath(os.path.join(main, os.path.relpath(each, top))) for each in folders]
    wanted = variables.get("UV_PROJECT_ENVIRONMENT", "")
    yield from (os.path.join(each, wanted) for each in folders if wanted)
    yield from (os.path.join(each, name) for each in folders for name in (".venv", "venv"))
    yield variables.get("VIRTUAL_ENV", "")
    conda = variables.get("CONDA_PREFIX", "")
    # conda's base environment is active wherever conda is, so it is not a deliberate choice.
    if variables.get("CONDA_DEFAULT_ENV") != "base":
        yield conda
    for each in folders:
        yield from _list_poetry(each, variables)
    yield conda


def _list_poetry(project: str, variables: Mapping[str, str]) -> list[str]:
    """Return poetry's environments for a project, newest first. Poetry names them after a hash of its path."""
    home = variables.get("HOME", "")
    cache = os.path.join(home, "Library/Caches") if sys.platform == "darwin" else os.path.join(home, ".cache")
    cache = cache if sys.platform == "darwin" else variables.get("XDG_CACHE_HOME") or cache
    own = variables.get("POETRY_CACHE_DIR") or os.path.join(cache, "pypoetry")
    place = variables.get("POETRY_VIRTUALENVS_PATH") or os.path.join(own, "virtualenvs")
    digest = hashlib.sha256(os.path.normcase(os.path.realpath(project)).encode()).digest()
    name = base64.urlsafe_b64encode(digest).decode()[:8]
    found = glob(f"{escape(place)}/*-{name}-py*") if os.path.isabs(place) else []
    return sorted(found, key=os.path.getmtime, reverse=True)


def _is_environment(folder: str) -> bool:
    is_marked = any(os.path.lexists(os.path.join(folder, mark)) for mark in _MARKS)
    return os.path.isabs(folder) and is_marked and bool(find_interpreter(folder))
