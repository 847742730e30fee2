"""Requests the diagnostics of files from language servers, sorts, filters and renders them."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from retinue.core.errors import ToolFailed, quote
from retinue.tools.lsp.call import SEVERITIES, LspCall, read_start
from retinue.tools.lsp.jsonrpc import LspFailed, NoServer, ServerTimeout
from retinue.tools.lsp.tool import TIMEOUT

AT_ONCE = 16
_MAX_MESSAGE = 1000


class LspDiagnostic(Struct, frozen=True, omit_defaults=True):
    """One diagnostic of a server."""

    line: int
    column: int
    severity: str
    message: str
    code: str = ""
    source: str = ""

    def render(self, file: str) -> str:
        code = f" [{self.code}]" if self.code else ""
        return f"{file}:{self.line}:{self.column}: {self.severity}: {self.message}{code}"


class FileDiagnostics(Struct, frozen=True):
    """The diagnostics of one file."""

    file: str
    complaints: tuple[LspDiagnostic, ...] = ()
    received: bool = False
    """Whether a server has answered."""
    unsupported: str = ""
    error: str = ""

    @property
    def status(self) -> str:
        if self.unsupported:
            return "unsupported"
        if self.error:
            return "error"
        return "ok" if self.received else "timeout"

    def keep(self, severity: str) -> tuple[LspDiagnostic, ...]:
        """Return the diagnostics of at least this severity; `all` keeps all."""
        if severity not in SEVERITIES:
            return self.complaints
        kept = SEVERITIES[: SEVERITIES.index(severity) + 1]
        return tuple(each for each in self.complaints if each.severity in kept)

    def explain(self) -> str:
        """Return why there are no diagnostics; empty if the server answered."""
        if self.unsupported:
            return f"Unsupported: {self.unsupported}"
        if self.error:
            return f"Error: {self.error}"
        return "" if self.received else TIMEOUT


async def diagnose(call: LspCall, name: str) -> FileDiagnostics:
    """Get the diagnostics of one file. Raises only LspFailed, for a file outside the workspace."""
    call.find_file(name)
    try:
        target = await call.open(name)
        found = await target.session.diagnose(target.document, target.session.server.wait_s)
    except FileNotFoundError:
        return FileDiagnostics(name, unsupported=f"file not found: {quote(name, 300)[1:-1]}")
    except NoServer as error:
        return FileDiagnostics(name, unsupported=str(error))
    except ServerTimeout:
        return FileDiagnostics(name)
    except (LspFailed, ToolFailed) as error:
        return FileDiagnostics(name, error=str(error))
    except (OSError, ValueError) as error:
        return FileDiagnostics(name, unsupported=f"{quote(name, 200)}: {getattr(error, 'strerror', None) or error}")
    return FileDiagnostics(name, tuple(_read_all(found)), received=True)


async def diagnose_all(call: LspCall, names: Sequence[str]) -> list[FileDiagnostics]:
    """Get the diagnostics of several files concurrently."""
    for name in names:
        call.find_file(name)
    found: list[FileDiagnostics] = []
    for index in range(0, len(names), AT_ONCE):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(diagnose(call, name)) for name in names[index : index + AT_ONCE]]
        found += [task.result() for task in tasks]
    return found


def _read_all(items: Iterable[dict[str, Any]]) -> Iterable[LspDiagnostic]:
    read = [_read(item) for item in items]
    return sorted(filter(None, read), key=lambda each: (each.line, each.column))


def _read(item: dict[str, Any]) -> LspDiagnostic | None:
    start = read_start(item.get("range"))
    if start is None:
        return None
    number = item.get("severity")
    severity = SEVERITIES[number - 1] if isinstance(number, int) and 1 <= number <= len(SEVERITIES) else "error"
    code, source = item.get("code"), item.get("source")
    return LspDiagnostic(
        start["line"] + 1,
        start["character"] + 1,
        severity,
        " ".join(str(item.get("message", "")).split())[:_MAX_MESSAGE],
        str(code)[:100] if isinstance(code, str | int) else "",
        source[:100] if isinstance(source, str) else "",
    )
