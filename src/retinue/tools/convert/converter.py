"""Runs the process that reads a document, sandboxed as far as this machine allows, and collects its output.

Must not know where the document came from.
"""

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from retinue.core.environment import CONVERTER, select
from retinue.core.errors import ToolFailed
from retinue.core.launch import Confinement
from retinue.core.pattern import late_pattern
from retinue.core.tool import ToolContext
from retinue.sandbox.profile import PRIVATE_DIRS, is_below
from retinue.tools.convert import child
from retinue.tools.convert.options import COMMAND, CPU_S, MEMORY_BYTES
from retinue.tools.convert.readers.registry import FORMATS
from retinue.tools.convert.source import Code, ConvertFailed, SourceDocument
from retinue.tools.process import Exit, ProcessCommand, run_process, to_command
from retinue.tools.process_tree import TreeProbe

MAX_OUTPUT, MAX_ERRORS = 8 << 20, 1 << 20
MAX_TASKS = 64
MAX_SUMMARY = 1000
INSTALL = "pip install 'retinue[convert]' adds the converter markitdown"
PACKAGES = ("pypdfium2", "pypdfium2_cfg", "pypdfium2_raw")
"""The packages that the reading process may import; all other readers need the standard library only."""
_CHILD = Path(child.__file__)
_ROOT = _CHILD.parents[3]
_CRASHES = ("SIGABRT", "SIGBUS", "SIGILL", "SIGSEGV", "SIGTRAP")
"""How native code ends if memory is refused, or if it checks itself and finds an error."""
_TRACE = "Traceback (most recent call last):"
_CONTROL = late_pattern(r"[\0-\x08\x0b-\x1f\x7f-\x9f]")


class Deadline(Struct, frozen=True):
    """When a conversion began (monotonic clock), and how long it may take in total."""

    begun_s: float
    timeout_s: float


class UnreadableDocument(ConvertFailed):
    """Raised for a document that our own readers cannot read; `told` is their message."""

    def __init__(self, code: Code, message: str, told: str) -> None:
        super().__init__(code, message)
        self.told = told


class Converter(Struct, frozen=True):
    """Reads documents with our own readers or an installed converter."""

    trees: TreeProbe
    environment: Mapping[str, str]

    async def choose(self, command: str, context: ToolContext) -> str:
        """Return the converter if it may be used. It may write files, so a read-only run uses it only in a sandbox."""
        is_free = not command or await open_boundary(context) is not None or not await is_readonly(context)
        return command if is_free else ""

    async def read(
        self, document: SourceDocument, command: str, context: ToolContext, deadline: Deadline
    ) -> tuple[str, str]:
        """Return the reader's name and the text. markitdown is used only for what our own readers cannot read.

        Raises ConvertFailed.
        """
        if command and os.path.basename(command) != COMMAND:
            return "markitdown", await self.convert(document, command, context, deadline)
        try:
            return "builtin", await self.convert(document, "", context, deadline)
        except UnreadableDocument as refused:
            if not command:
                raise
            return "markitdown", await self._ask(document, command, context, deadline, refused.told)

    async def _ask(
        self, document: SourceDocument, command: str, context: ToolContext, deadline: Deadline, told: str
    ) -> str:
        """Convert a document that our own readers refused with this message.

        For unknown formats markitdown may print the file unchanged and report success; that is treated as a failure.
        """
        try:
            text = await self.convert(document, command, context, deadline)
        except UnreadableDocument:
            raise
        except ConvertFailed as error:
            raise ConvertFailed(error.code, f"{told}; {error}") from None
        if _squeeze(text) == _squeeze(document.data.decode("latin-1")):
            raise ConvertFailed("CONVERT_FAILED", f"{told}; {COMMAND} returned it unchanged")
        return text

    async def convert(self, document: SourceDocument, command: str, context: ToolContext, deadline: Deadline) -> str:
        """Return the document as markdown; `command` is the converter, empty for our own readers.

        Raises ConvertFailed.
        """
        boundary = await open_boundary(context)
        output, errors = bytearray(), bytearray()
        with ExitStack() as held:
            path = held.enter_context(write_document(document))
            argv = self._build_argv(path, command)
            if boundary is None:
                tree = await self.trees.find()
                env = {**select(self.environment, CONVERTER), "TMPDIR": str(path.parent)}
                started = ProcessCommand(argv, str(path.parent), env)
            else:
                launch = boundary.wrap(
                    argv, dict(self.environment), str(context.cwd), visible=list_visible(path, command)
                )
                started, tree = to_command(held.enter_context(launch), max_tasks=MAX_TASKS)
            try:
                ended = await run_process(
                    started,
                    on_output=lambda data: take(output, data, MAX_OUTPUT),
                    on_error=lambda data: take(errors, data, MAX_ERRORS),
                    timeout_s=max(0.1, deadline.begun_s + deadline.timeout_s - time.monotonic()),
                    tree=tree,
                )
            except OSError as error:
                raise ConvertFailed("CONVERT_FAILED", f"the converter cannot be started ({error.strerror})") from None
            told = summarise(bytes(errors), path, self.environment)
        explain_end(ended, told, deadline.timeout_s)
        text = output.decode("utf-8", "replace").replace(f"{path.parent}/", "")
        if command and not text.strip():
            raise ConvertFailed("CONVERT_FAILED", "the converter found no text in it")
        return text

    def _build_argv(self, path: Path, command: str) -> list[str]:
        packages = os.pathsep.join(list_packages())
        own = [sys.executable, "-I", "-S", str(_CHILD), str(_ROOT), packages]
        own += [str(path), str(MEMORY_BYTES), str(CPU_S)]
        return [*own, command] if command else own


@cache
def list_packages() -> list[str]:
    """Return the folders of the packages that our readers need and that are installed."""
    found = [find_spec(name) for name in PACKAGES]
    return [os.path.dirname(each.origin) for each in found if each is not None and each.origin]


def list_visible(path: Path, command: str) -> list[str]:
    """Return the paths that the process needs inside directories that the sandbox hides."""
    prefix = os.path.dirname(os.path.dirname(command))
    # A whole prefix is shown only if it is a Python environment; otherwise only the program itself.
    own = prefix if os.path.exists(os.path.join(prefix, "pyvenv.cfg")) else command
    needed = (str(path.parent), str(_ROOT), sys.prefix, sys.base_prefix, *list_packages(), own)
    return [each for each in map(os.path.realpath, filter(None, needed)) if is_below(each, PRIVATE_DIRS)]


async def open_boundary(context: ToolContext) -> Confinement | None:
    """Return a sandbox in which nothing can be changed; None if there is none."""
    if context.confinement is None:
        return None
    try:
        return await context.confinement.open_readonly()
    except ToolFailed:
        return None


async def is_readonly(context: ToolContext) -> bool:
    """Whether the run itself is read-only."""
    boundary = None if context.confinement is None else await context.confinement.open()
    return boundary is not None and boundary.is_readonly


@contextmanager
def write_document(document: SourceDocument) -> Iterator[Path]:
    """Write the document to a temporary file that is deleted afterwards."""
    with TemporaryDirectory(prefix="devkit-pi-convert-", ignore_cleanup_errors=True) as folder:
        path = Path(os.path.realpath(folder)) / document.name
        path.write_bytes(document.data)
        yield path


def take(into: bytearray, data: bytes, most: int) -> bool:
    """Append data up to a limit; return True if it is reached."""
    into += data[: max(0, most - len(into))]
    return len(into) >= most


def explain_end(ended: Exit, told: str, timeout_s: float) -> None:
    """Raise ConvertFailed unless the process succeeded."""
    if ended.timed_out:
        raise ConvertFailed("CONVERT_TIMEOUT", f"the conversion took more than {timeout_s * 1000:.0f} ms")
    if ended.stopped:
        raise ConvertFailed("CONVERT_FAILED", f"the converter printed more than {MAX_OUTPUT} bytes")
    if ended.exceeded_processes:
        raise ConvertFailed("CONVERT_FAILED", f"the converter started more than {MAX_TASKS} processes")
    if ended.exceeded_memory:
        raise ConvertFailed(
            "CONVERT_FAILED", f"the converter had more than {ended.exceeded_memory >> 20} MiB of memory"
        )
    if ended.code == child.UNSUPPORTED:
        listed = ", ".join(FORMATS)
        text = f"{told} needs a converter that is not installed: {INSTALL}. Without it, these are read: {listed}"
        raise UnreadableDocument("COMMAND_NOT_FOUND", text, told)
    if ended.code == child.UNREADABLE:
        raise UnreadableDocument("CONVERT_FAILED", told, told)
    if ended.code == child.NO_MEMORY:
        raise ConvertFailed("CONVERT_FAILED", f"the document needs more than {MEMORY_BYTES >> 20} MiB of memory")
    if ended.signal_name in _CRASHES:
        most = f"{MEMORY_BYTES >> 20} MiB of memory"
        text = f"the reader crashed ({ended.signal_name}): the document is damaged, or it needs more than {most}"
        raise ConvertFailed("CONVERT_FAILED", text)
    if ended.signal_name == "SIGXCPU":
        raise ConvertFailed("CONVERT_FAILED", f"the document took more than {CPU_S} s of computing")
    if ended.code:
        name = f" ({ended.signal_name})" if ended.signal_name else ""
        raise ConvertFailed(
            "CONVERT_FAILED", f"the converter ended with exit code {ended.code}{name}: {told}".strip(": ")
        )


def _squeeze(text: str) -> str:
    """Keep only the characters that do not depend on the encoding."""
    return re.sub(r"[^!-~]", "", text)


def summarise(errors: bytes, path: Path, environment: Mapping[str, str]) -> str:
    """Return the end of the error output, without local paths."""
    text = _CONTROL.sub("", errors.decode("utf-8", "replace")).replace(str(path.parent) + "/", "")
    home = environment.get("HOME", "")
    text = text.replace(home, "~") if len(home) > 1 else text
    text = text.strip()
    # Only the last line of a traceback is the reason.
    return (text.rpartition("\n")[2] if _TRACE in text else text)[-MAX_SUMMARY:]
