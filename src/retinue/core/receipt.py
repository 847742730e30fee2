"""What the host saw of a run's work: its commands, the changed files, the verification and the commit. Pure.

Nothing here is reported by the model.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from retinue.core.errors import UsageError, quote

Verification: TypeAlias = Literal["verified", "failed", "not verified"]
"""Whether the commands that verify the result of a run succeeded; `not verified` if one was not run."""
VERIFICATION_FAILED = "SUBAGENT_VERIFICATION_FAILED"
MAX_COMMANDS = 20
MAX_COMMAND_CHARS = 10_000
_SHOWN_FILES = 10


class CommandResult(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One shell command that was run."""

    command: str
    exit_code: int | None
    """None if it did not end by itself, such as at a time limit."""
    duration_ms: int | None
    """None if it was not run."""
    output: str = ""
    """The end of what it printed, and how it ended."""

    @property
    def is_good(self) -> bool:
        return self.exit_code == 0


class FileReceipt(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file that changed while a run worked."""

    path: str
    """Relative to the top of the workspace."""
    change: Literal["created", "changed", "deleted"]
    sha256: str | None
    """Of its content at the end; None if there is none, or if it could not be read."""
    maybe_by: tuple[str, ...] = ()
    """Other runs, one of which may have changed it instead; empty text for somebody else."""


class Receipts(Struct, frozen=True, rename="camel"):
    """What the host saw of one run."""

    commands: tuple[CommandResult, ...] = ()
    """Those of the agent, without their output."""
    files: tuple[FileReceipt, ...] = ()
    verification: tuple[CommandResult, ...] = ()
    """The last run of the commands that verify the result."""
    verify_files: tuple[str, ...] = ()
    """Files that these commands changed, and the agent did not."""
    commit: str | None = None
    """The commit with the changes."""
    notes: tuple[str, ...] = ()
    """What could not be seen or run, and why."""


NONE = Receipts()


def describe_receipts(verification: Verification, receipts: Receipts | None) -> dict[str, Any]:
    """Return the fields for programs."""
    fields = msgspec.json.decode(msgspec.json.encode(receipts or NONE))
    if not fields["verifyFiles"]:
        del fields["verifyFiles"]
    return {"verification": verification, "receipts": fields}


def render_receipts(verification: Verification, receipts: Receipts | None) -> str:
    """Return the short form for a model, one fact per line; empty if there is nothing to say."""
    receipts = receipts or NONE
    lines = []
    if verification == "verified":
        lines = [f"Verified by the host: {_list_commands(receipts.verification)} succeeded."]
    if receipts.files:
        files = [file.path if file.change == "changed" else f"{file.path} ({file.change})" for file in receipts.files]
        lines.append(f"Files that the host saw change: {list_paths(files)}.")
    if receipts.verify_files:
        lines.append(f"Changed by commands that verify the result: {list_paths(receipts.verify_files)}.")
    return "\n".join((*lines, *receipts.notes))


def list_paths(paths: Sequence[str]) -> str:
    """Return the first paths, and how many more there are."""
    more = f" and {len(paths) - _SHOWN_FILES} more" if len(paths) > _SHOWN_FILES else ""
    return ", ".join(paths[:_SHOWN_FILES]) + more


def describe_verdict(verification: Verification) -> str:
    """Return the state in words for people."""
    return "verification failed" if verification == "failed" else verification


def _list_commands(commands: Iterable[CommandResult]) -> str:
    return ", ".join(f"`{each.command}`" for each in commands)


def to_commands(given: Any, name: str = "verify") -> tuple[str, ...]:
    """Return the shell commands in a text or a list of texts. Raises UsageError that begins with `name`."""
    listed = [given] if isinstance(given, str) else given
    if listed is None:
        return ()
    if not isinstance(listed, list | tuple):
        raise UsageError(f"{name}: found {quote(given)}; expected a shell command or a list of shell commands")
    if len(listed) > MAX_COMMANDS:
        raise UsageError(f"{name}: found {len(listed)} commands; expected at most {MAX_COMMANDS}")
    for command in listed:
        if not isinstance(command, str) or not command.strip() or "\0" in command or len(command) > MAX_COMMAND_CHARS:
            expected = f"a shell command of at most {MAX_COMMAND_CHARS} characters"
            raise UsageError(f"{name}: found {quote(command)}; expected {expected}")
    return tuple(dict.fromkeys(command.strip() for command in listed))
