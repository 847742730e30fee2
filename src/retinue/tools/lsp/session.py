"""One running language server: initialization, requests, shutdown.

Nothing that a server wants to change is changed. Permissions are checked elsewhere.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from retinue.core.errors import RetinueError
from retinue.core.launch import Territory
from retinue.tools.lsp.documents import Documents, OpenDocument, SourceWatch, Stamp, to_uri
from retinue.tools.lsp.jsonrpc import JsonRpcClient, LspFailed, ServerTimeout
from retinue.tools.lsp.python_environment import find_interpreter
from retinue.tools.lsp.servers import LanguageServer
from retinue.tools.server_program import ServerProgram, Start

WATCH_S = 2.0
"""Seconds between two checks for changed files."""
_SETTLE_S = 0.15
_GRACE_S = 0.3
"""Seconds for the shutdown request, and again for the process to end."""
_KEPT_DIAGNOSTICS = 2000
"""How many files' diagnostics are kept; some servers send those of the whole project."""
_CAPABILITIES = {
    "general": {"positionEncodings": ["utf-32", "utf-16"]},
    "textDocument": {
        "synchronization": {"didSave": True},
        "publishDiagnostics": {"versionSupport": True},
        "diagnostic": {},
        "definition": {"linkSupport": True},
        "references": {},
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "signatureHelp": {"signatureInformation": {"documentationFormat": ["markdown", "plaintext"]}},
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
        "rename": {},
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["", "quickfix", "refactor"]}}},
    },
    "workspace": {
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
    },
    "window": {"workDoneProgress": False},
}
_NOTED = frozenset(
    (
        *("client/registerCapability", "client/unregisterCapability", "window/workDoneProgress/create"),
        *("window/showMessageRequest", "workspace/diagnostic/refresh", "workspace/semanticTokens/refresh"),
        *("workspace/inlayHint/refresh", "workspace/codeLens/refresh", "workspace/foldingRange/refresh"),
    )
)


@dataclass(frozen=True, slots=True)
class LspBounds:
    """Time and number limits."""

    init_s: float = 30.0
    request_s: float = 10.0
    unused_s: float = 120.0
    """A server that is not used for this long is shut down."""
    file_unused_s: float = 60.0
    open_files: int = 30
    servers: int = 12
    """How many may run at once; each worktree has its own servers."""
    restarts: int = 3
    rest_s: float = 60.0
    """After this time a server that was given up may be tried once more."""


class LspSession:
    """One server from its start to its end."""

    def __init__(self, server: LanguageServer, start: Start, bounds: LspBounds, python: str = "") -> None:
        """`python` is the folder of the project's environment, for a Python server."""
        self.server = server
        self.root = start.root
        self.program_name = os.path.basename(start.argv[0])
        self._python = find_interpreter(python) if python else ""
        self._bounds = bounds
        self._loop = asyncio.get_running_loop()
        self.client = JsonRpcClient(lambda data: self._program.write(data), self._answer, self._hear)
        self._program = ServerProgram(start, self.client.take)
        self.documents = Documents(self._tell, self._name_language, most=bounds.open_files)
        self._watch = SourceWatch(start.root, server.extensions, server.markers)
        self._looked_s = 0.0
        self._looking = asyncio.Lock()
        self._capabilities: dict[str, Any] = {}
        self._encoding = "utf-16"
        self._published: dict[str, tuple[int, Any, list[Any]]] = {}
        """By URI: sequence number, document version, diagnostics."""
        self._count = 0
        self._news = asyncio.Event()
        self._wake = asyncio.Event()
        self.is_stopping = False
        """Whether its end is intended."""
        self._busy = 0
        self.used_s = self._loop.time()

    async def serve(self, on_ready: Callable[[], None]) -> str:
        """Run until stopped, idle for too long, or the server ends; return why, or an empty string if it was stopped.

        Raises only on cancellation; then no process is left.
        """
        failure = ""
        async with asyncio.TaskGroup() as group:
            process = group.create_task(self._run())
            try:
                failure = await self._introduce()
                if not failure:
                    on_ready()
                    await self._stay()
                    failure = "" if self.is_stopping else self.client.over
                    await self._part(process)
            finally:
                self.client.end("it was shut down")
                process.cancel()
        return failure

    def stop(self) -> None:
        self.is_stopping = True
        self._wake.set()

    @property
    def is_usable(self) -> bool:
        return not self.is_stopping and not self.client.over

    @property
    def is_busy(self) -> bool:
        """Whether a request is pending."""
        return self._busy > 0

    def has(self, capability: str) -> bool:
        """Whether the server declares a capability."""
        return bool(self._capabilities.get(capability)) or self._capabilities.get(capability) == {}

    async def ask(self, method: str, params: Any, timeout_s: float | None = None) -> Any:
        """Send a request and return its result. Raises LspFailed."""
        with self._at_work():
            try:
                return await self.client.ask(method, params, timeout_s or self._bounds.request_s)
            except ServerTimeout:
                raise
            except LspFailed as error:
                raise LspFailed(f"{self.server.id} server: {error}", error.code) from error

    async def show(self, path: str, text: str, stamp: Stamp, territory: Territory) -> OpenDocument:
        """Open a file with this text, and report other changed files to the server."""
        with self._at_work():
            await self._look()
            self.documents.refresh(territory)
            return self.documents.show(path, text, stamp, self._loop.time())

    async def diagnose(self, document: OpenDocument, timeout_s: float) -> list[dict[str, Any]]:
        """Return the diagnostics of a file. Raises ServerTimeout, or LspFailed."""
        with self._at_work():
            if not self.has("diagnosticProvider"):
                return await self._await_published(document, timeout_s)
            params = {"textDocument": {"uri": document.uri}}
            report = await self.ask("textDocument/diagnostic", params, timeout_s)
            items = report.get("items") if isinstance(report, dict) else None
            # Diagnostics from building the whole project are only published, not returned by this request.
            told = self._published.get(document.uri, (0, 0, []))[2]
            found = [item for item in items or [] if isinstance(item, dict)]
            return found + [item for item in told if item not in found]

    def to_position(self, document: OpenDocument, line: int, column: int) -> dict[str, int]:
        """Convert a position counted from 1 in characters to the server's encoding."""
        # Clamp to the end of the line and the last line, because some servers crash on larger numbers.
        line = min(line, document.count_lines())
        text = document.get_line(line - 1)[: column - 1]
        width = len(text) if self._encoding == "utf-32" else len(text.encode("utf-16-le", "replace")) // 2
        return {"line": line - 1, "character": width}

    def _tell(self, method: str, params: Any) -> None:
        if method in ("textDocument/didOpen", "textDocument/didChange"):
            # Diagnostics of the old content are obsolete.
            self._published.pop(params["textDocument"]["uri"], None)
        self.client.tell(method, params)

    def _name_language(self, path: str) -> str:
        return self.server.extensions.get(os.path.splitext(path)[1].lower(), "plaintext")

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self.used_s = self._loop.time()

    async def _run(self) -> None:
        reason = "it cannot be started"
        try:
            reason = await self._program.run()
        except RetinueError as error:
            reason = str(error)
        finally:
            self.client.end(reason)
            self._wake.set()
            self._news.set()

    async def _introduce(self) -> str:
        """Initialize the connection; return why that failed, or an empty string."""
        uri = to_uri(self.root)
        params = {
            "processId": None,
            "clientInfo": {"name": "retinue"},
            "rootPath": self.root,
            "rootUri": uri,
            "workspaceFolders": [{"uri": uri, "name": os.path.basename(self.root)}],
            "capabilities": _CAPABILITIES,
        }
        # The process must get its input pipe first.
        await asyncio.sleep(0)
        try:
            answer = await self._begin(params)
        except ServerTimeout:
            return f"it was not ready within {self._bounds.init_s:g} s"
        except LspFailed as error:
            return str(error)
        capabilities = answer.get("capabilities") if isinstance(answer, dict) else None
        if not isinstance(capabilities, dict):
            return "it does not say what it can do"
        self._capabilities = capabilities
        self._encoding = str(capabilities.get("positionEncoding") or "utf-16")
        self.client.tell("initialized", {})
        return ""

    async def _begin(self, params: dict[str, Any]) -> Any:
        answer = await self.client.ask("initialize", params, self._bounds.init_s)
        await asyncio.to_thread(self._watch.look)
        self._looked_s = self._loop.time()
        return answer

    async def _stay(self) -> None:
        bounds = self._bounds
        nap_s = min(bounds.unused_s, bounds.file_unused_s) / 4
        while self.is_usable:
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(nap_s):
                    await self._wake.wait()
            now_s = self._loop.time()
            self.documents.close_idle(now_s - bounds.file_unused_s)
            if not self._busy and now_s - self.used_s >= bounds.unused_s:
                self.is_stopping = True

    async def _part(self, process: asyncio.Task[None]) -> None:
        """Shut down politely, with a short timeout."""
        with suppress(LspFailed):
            await self.client.ask("shutdown", None, _GRACE_S)
        self.client.tell("exit", None)
        self._program.hang_up()
        await asyncio.wait([process], timeout=_GRACE_S)

    async def _look(self) -> None:
        """Report files that changed on disk, unless the last check was recent."""
        if self._loop.time() - self._looked_s < WATCH_S:
            return
        async with self._looking:
            if self._loop.time() - self._looked_s < WATCH_S:
                return
            changes = await asyncio.to_thread(self._watch.look)
            self._looked_s = self._loop.time()
        if changes:
            told = [{"uri": to_uri(path), "type": kind} for path, kind in changes]
            self.client.tell("workspace/didChangeWatchedFiles", {"changes": told})

    async def _await_published(self, document: OpenDocument, timeout_s: float) -> list[dict[str, Any]]:
        """Wait for published diagnostics of the current version, until no newer ones arrive."""
        uri, seen = document.uri, None
        try:
            async with asyncio.timeout(timeout_s):
                while not self.client.over:
                    self._news.clear()
                    entry = self._published.get(uri)
                    if entry is not None and entry[1] in (None, document.version) and entry[0] == seen:
                        return entry[2]
                    is_fresh = entry is not None and entry[1] in (None, document.version)
                    seen = entry[0] if is_fresh and entry is not None else None
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_SETTLE_S if is_fresh else None):
                            await self._news.wait()
        except TimeoutError:
            raise ServerTimeout(f"no diagnostics within {timeout_s:g} s") from None
        raise LspFailed(f"{self.server.id} server: {self.client.over}")

    def _answer(self, method: str, params: Any) -> Any:
        """Answer a request of the server. Raises KeyError for unknown methods."""
        if method in _NOTED:
            return None
        match method:
            case "workspace/configuration":
                return [self._configure(item) for item in params["items"]]
            case "workspace/workspaceFolders":
                return [{"uri": to_uri(self.root), "name": os.path.basename(self.root)}]
            case "workspace/applyEdit":
                return {"applied": False, "failureReason": "nothing is changed here"}
            case "window/showDocument":
                return {"success": False}
        raise KeyError(method)

    def _configure(self, item: Any) -> Any:
        """Return the settings for a server: pyright and basedpyright get their Python interpreter this way."""
        is_python = self._python and isinstance(item, dict) and item.get("section") == "python"
        return {"pythonPath": self._python} if is_python else None

    def _hear(self, method: str, params: Any) -> None:
        if method != "textDocument/publishDiagnostics" or not isinstance(params, dict):
            return
        uri, items = params.get("uri"), params.get("diagnostics")
        if isinstance(uri, str) and isinstance(items, list):
            self._count += 1
            self._published.pop(uri, None)
            found = [item for item in items if isinstance(item, dict)]
            self._published[uri] = (self._count, params.get("version"), found)
            if len(self._published) > _KEPT_DIAGNOSTICS:
                del self._published[next(iter(self._published))]
            self._news.set()
