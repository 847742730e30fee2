"""Describe the directory where a subagent will work: whether it is a git repository, and its branch.

Git runs hardened, so that repository configuration cannot start programs, and with a time limit.
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
    """Return the facts for a subagent's prompt. Does not raise if git fails."""
    shell = environment.get("SHELL", "")
    # Starting git is the slowest part of starting a run, so skip it outside of repositories.
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
    """Return the nearest directory upwards that contains `.git`; None if there is none."""
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
    """Return the program on the PATH, from absolute directories only and not below `outside`."""
    root = os.path.realpath(outside) + os.sep if outside else ""
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        candidate = os.path.join(folder, name)
        is_inside = bool(root) and f"{os.path.realpath(folder)}{os.sep}".startswith(root)
        if os.path.isabs(folder) and not is_inside and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def harden_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return a minimal environment for git: no secrets, and no GIT_ variables that redirect it."""
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
    """Return git's trimmed output; None if it fails or takes too long."""
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
