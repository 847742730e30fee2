"""Looks at the directory a child will work in: is it a git repository, and on which branch.

Git runs with nothing of the repository's that could start a program, and for a few seconds at most.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from retinue.core.environment import GIT, select
from retinue.engine.prompt import Place

GIT_TIMEOUT_S = 5.0
_MAX_OUTPUT = 4096
_HARDENED = (
    "--no-pager",
    "-c",
    "core.fsmonitor=",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "safe.bareRepository=explicit",
)


async def survey_place(cwd: Path, environment: Mapping[str, str], *, timeout_s: float = GIT_TIMEOUT_S) -> Place:
    """The facts for a child's prompt. Never raises for what git does."""
    shell = environment.get("SHELL", "")
    # Starting git takes longer than all the rest of a run's beginning: not where nothing of git's is from here up.
    root = _find_root(cwd)
    git = None if root is None else find_program("git", environment, outside=root)
    if git is None:
        return Place(str(cwd), shell=shell)
    variables = harden_environment(environment)
    inside, branch = await asyncio.gather(
        _ask(git, ("rev-parse", "--is-inside-work-tree"), cwd, variables, timeout_s),
        _ask(git, ("branch", "--show-current"), cwd, variables, timeout_s),
    )
    if inside != "true":
        return Place(str(cwd), shell=shell)
    return Place(str(cwd), "unknown" if branch is None else branch, shell=shell)


def _find_root(cwd: Path) -> str | None:
    """The directory above that looks like a repository; None when none does."""
    try:
        real = os.path.realpath(cwd)
    except OSError:
        return str(cwd)
    while not os.path.lexists(os.path.join(real, ".git")):
        above = os.path.dirname(real)
        if above == real:
            return None
        real = above
    return real


def find_program(name: str, environment: Mapping[str, str], *, outside: str = "") -> str | None:
    """The program on the search path, in absolute directories only and not below `outside`."""
    root = os.path.realpath(outside) + os.sep if outside else ""
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, name)
        is_inside = bool(root) and f"{os.path.realpath(folder)}{os.sep}".startswith(root)
        if os.path.isabs(folder) and not is_inside and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def harden_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What git needs of the environment, without its own variables, which could point it elsewhere, or any secret."""
    kept = select(environment, ("PATH", *GIT))
    safe = {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }
    return {**kept, **safe}


async def _ask(
    git: str, arguments: Sequence[str], cwd: Path, variables: Mapping[str, str], timeout_s: float
) -> str | None:
    """What git prints, trimmed; None when it fails, or takes too long."""
    try:
        process = await asyncio.create_subprocess_exec(
            git,
            *_HARDENED,
            *arguments,
            cwd=cwd,
            env=dict(variables),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except (OSError, ValueError):
        return None
    assert process.stdout is not None
    try:
        async with asyncio.timeout(timeout_s):
            printed = await process.stdout.read(_MAX_OUTPUT)
            status = await process.wait()
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return printed.decode("utf-8", "replace").strip() if status == 0 else None
