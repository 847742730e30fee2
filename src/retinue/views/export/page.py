"""Renders the whole HTML export of a session and writes it to a file."""

import base64
import hashlib
import os
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from retinue.core.errors import UsageError, quote
from retinue.core.figures import count_tokens, describe_input, format_cost, format_duration, format_tokens
from retinue.core.messages import Usage
from retinue.core.model import ModelInfo
from retinue.core.receipt import CommandResult, describe_verdict
from retinue.core.redaction import Redactor, collect_secrets
from retinue.settings.paths import find_paths
from retinue.settings.providers import load_registry
from retinue.views.export.charts import draw_bars, draw_timeline, order_chapters
from retinue.views.export.conversation import cut_line, escape, render_messages
from retinue.views.report import ConversationReport, SessionReport, read_report

_TIMES = {"model": "model", "tool": "tool", "waiting": "queued", "idle": "no agent working (shortened)"}
_TOKENS = {"cached": "cached input", "input": "input", "output": "output"}
_HEAD_CHARS = 60
_HASH_CHARS = 16


def render_page(report: SessionReport, models: Iterable[ModelInfo] = ()) -> str:
    style = _load_style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report.title)}</title><style>{style}</style></head><body>",
        f"<h1>{escape(report.title)}</h1>",
        _render_facts(report, savings := report.measure_savings(models)),
    ]
    if timeline := draw_timeline(report):
        parts += ["<h2>Timeline</h2>", _render_legend(_TIMES, timeline), timeline]
    if bars := draw_bars(order_chapters(report)):
        parts += ["<h2>Tokens and cost</h2>", _render_legend(_TOKENS, bars), bars]
    if report.runs:
        parts += ["<h2>Runs</h2>", _render_branch(report.main.id, report.map_children(), savings)]
    parts += ['<h2 id="main">Conversation</h2>', render_messages(report.main.messages)]
    for chapter in order_chapters(report)[1:]:
        parts.append(_render_chapter(chapter))
    return "\n".join([*parts, "</body></html>", ""])


def _render_legend(kinds: Mapping[str, str], chart: str) -> str:
    """Explain the colours that a chart uses."""
    used = [f'<i class="{kind}"></i>{words}' for kind, words in kinds.items() if f'<rect class="{kind}"' in chart]
    return f'<p class="legend">{"".join(used)}</p>'


def _render_facts(report: SessionReport, savings: Mapping[str, float]) -> str:
    cost = sum(chapter.usage.cost.total for chapter in report.chapters)
    tokens = sum(count_tokens(chapter.usage) for chapter in report.chapters)
    spans = [chapter for chapter in report.chapters if chapter.spans]
    length = max((c.end_ms for c in spans), default=0) - min((c.start_ms for c in spans), default=0)
    facts = [report.cwd, report.created, f"session {report.session_id}", report.main.model]
    facts += [f"{len(report.runs)} runs" if report.runs else "", f"{format_tokens(tokens)} tokens", format_cost(cost)]
    used = sum((chapter.usage for chapter in report.chapters), Usage())
    facts.append(describe_input(used, sum(savings.values())) if tokens else "")
    facts += [format_duration(length) if spans else "", report.damage]
    return f'<p class="facts">{escape(" · ".join(fact for fact in facts if fact))}</p>'


def _render_branch(
    parent_id: str, below: Mapping[str, list[ConversationReport]], savings: Mapping[str, float], depth: int = 0
) -> str:
    if depth > 50 or not below.get(parent_id):
        return ""
    items = []
    for run in below[parent_id]:
        verdict = "" if run.verification == "not verified" else describe_verdict(run.verification)
        facts = [run.status, verdict, f"{run.turns} turns", f"{run.tool_uses} tools"]
        facts += [f"{format_tokens(count_tokens(run.usage))} tokens", format_cost(run.usage.cost.total)]
        facts.append(describe_input(run.usage, savings[run.id]) if count_tokens(run.usage) else "")
        facts.append(format_duration(run.end_ms - run.start_ms) if run.spans else "")
        line = f'<a href="#{escape(run.id)}"><b>{escape(run.agent)}</b> {escape(cut_line(run.title, _HEAD_CHARS))}</a>'
        told = f'<span class="facts"> {escape(" · ".join(fact for fact in facts if fact))}</span>'
        items.append(f"<li><div>{line}{told}</div>{_render_branch(run.id, below, savings, depth + 1)}</li>")
    return f'<ul class="tree">{"".join(items)}</ul>'


def _render_chapter(chapter: ConversationReport) -> str:
    error = f'<p class="error">{escape(chapter.error)}</p>' if chapter.error else ""
    error += _render_receipts(chapter)
    head = cut_line(f"{chapter.agent}: {chapter.title}", _HEAD_CHARS)
    body = render_messages(chapter.messages) or "<p>its conversation was not saved</p>"
    return (
        f'<details id="{escape(chapter.id)}" class="run"><summary><h2>{escape(head)}</h2> '
        f'<span class="facts">{escape(chapter.status)} {escape(chapter.model)}</span></summary>{error}{body}</details>'
    )


def _render_receipts(chapter: ConversationReport) -> str:
    """Render what the host saw of a run: its verification, the changed files, and the commands."""
    seen = chapter.receipts
    if seen is None:
        return ""
    rows = [(f"{file.change} {file.path}", (file.sha256 or "")[:_HASH_CHARS]) for file in seen.files]
    rows += [(f"$ {each.command}", _tell_end(each)) for each in seen.commands]
    rows += [(f"verified by $ {each.command}", _tell_end(each)) for each in seen.verification]
    rows += [("commit", seen.commit)] if seen.commit else []
    items = [f'<li>{escape(text)} <span class="facts">{escape(end)}</span></li>' for text, end in rows]
    items += [f"<li>{escape(note)}</li>" for note in seen.notes]
    head = f"seen by the host: {describe_verdict(chapter.verification)}"
    return f"<details><summary>{escape(head)}</summary><ul>{''.join(items)}</ul></details>"


def _tell_end(result: CommandResult) -> str:
    end = "did not end by itself" if result.exit_code is None else f"exit status {result.exit_code}"
    return end if result.duration_ms is None else f"{end}, {format_duration(result.duration_ms)}"


@cache
def _load_style() -> str:
    return files(__package__).joinpath("page.css").read_text(encoding="utf-8")


def export_session(session_file: str | Path, target: Path, *, is_asked: bool) -> None:
    """Write a session as an HTML page. An existing file is replaced only if the user named it (`is_asked`).

    Raises SessionError or UsageError.
    """
    page = render_export(session_file).encode("utf-8", "replace")
    try:
        if is_asked:
            target.unlink(missing_ok=True)
        with open(target, "xb", opener=_open_private) as file:
            file.write(page)
    except FileExistsError:
        raise UsageError(f"{quote(str(target), 200)} already exists; to replace it, name it explicitly") from None
    except OSError as error:
        raise UsageError(f"{quote(str(target), 200)} cannot be written: {error.strerror}") from None


def render_export(session_file: str | Path) -> str:
    """Render a session as an HTML page without the user's current API keys. Raises SessionError."""
    paths = find_paths(".", os.environ)
    registry, _ = load_registry(paths, os.environ, offline=True)
    # The page is made to be shared, so text that only looks like a secret is removed too.
    redactor = Redactor(collect_secrets(os.environ), patterns=True)
    redactor.learn(*registry.keys.list_secrets(registry.providers.values()))
    return redactor.redact(render_page(read_report(session_file), registry.names.candidates))


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW, 0o600)
