"""Merge several reports into one answer: the evidence of each part without repetition, and one footer.

This file must not know how the reports were fetched.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from retinue.models.offline.answer import NOTE
from retinue.models.offline.delegation import AGENT, DelegatedPart, DelegationRound, RunNotice
from retinue.models.offline.quotes import shorten

_PLACE = re.compile(r"`([^`\s:]+\.[^`\s:]+|[A-Za-z]\w*file):\d+`")
_QUOTE = re.compile(r"^- `.*\n  ```.*\n(?:  .*\n)*?  ```\n", re.MULTILINE)
"""A location and the code quoted from it."""
MAX_QUOTES = 2
_LOOKED = re.compile(r"(\d+) (searches|reads|listings)\b")
_READ = re.compile(r"\(read ((?:`[^`]+`(?:, )?)+)")


@dataclass(frozen=True, slots=True)
class AgentReport:
    """The report of one subagent, with its footer split off."""

    asked: str
    label: str
    """The confidence, or the status of the run."""
    body: str
    footer: str = ""


def read_report(part: DelegatedPart) -> AgentReport:
    """Split a report into body and footer; a report of another model is kept whole."""
    asked = part.question
    body, _, footer = part.report.strip().rpartition("\n---\n")
    if "`offline/rules`" not in footer:
        body, footer = part.report.strip(), ""
    footer, _, notes = footer.partition(NOTE)
    body = f"{body}\n\n{notes.strip()}".strip()
    sure = re.match(r"Confidence: (\w+)\.?", footer)
    label = sure.group(1) if sure else ""
    if part.is_success:
        body = _condense(body) if footer else body
        return AgentReport(asked, label, body or "The agent said nothing.", footer)
    if not part.status:
        return AgentReport(asked, "no report yet", "The agent was still at work.")
    said = f"There is no complete report: {shorten(part.status, 200)}."
    return AgentReport(asked, "failed", f"{said}\n\n{body}".strip(), footer)


def _condense(body: str) -> str:
    """Shorten a report of this model as if it were one part of several: fewer secondary results."""
    body += "\n"
    quotes = list(_QUOTE.finditer(body))
    for found in reversed(quotes[MAX_QUOTES:]):
        body = body[: found.start()] + body[found.end() :]
    return body.strip()


def merge_round(done: DelegationRound) -> str:
    """The answer to the question that was split into these parts."""
    reports = [read_report(part) for part in done.parts]
    shown: set[str] = set()
    lines: list[str] = []
    for report in reports:
        label = f" ({report.label})" if report.label else ""
        lines += [f"### {report.asked}{label}", *_show_once(report.body, shown), ""]
    counts = Counter(path for report in reports for path in dict.fromkeys(_PLACE.findall(report.body)))
    if common := [path for path, count in counts.most_common() if count > 1]:
        lines += [f"**In more than one part:** {', '.join(f'`{path}`' for path in common[:6])}", ""]
    return "\n".join([*lines, _render_footer(done, reports)])


def render_strangers(notices: Sequence[RunNotice]) -> str:
    """Report on runs that this model did not start."""
    told = [
        f"{notice.summary or f'Agent {notice.run_id}'}: {shorten(notice.status, 200)}.\n\n{notice.preview}\n"
        for notice in notices
    ]
    return "\n".join([*told, NOTE])


def _show_once(body: str, shown: set[str]) -> list[str]:
    """The lines of a report, without code that was quoted before."""
    lines: list[str] = []
    is_known = False
    for line in body.splitlines():
        found = re.match(r"- (`[^`]+:\d+`)", line)
        if found is not None:
            is_known = found.group(1) in shown
            shown.add(found.group(1))
            lines.append(line + (" (see above)" if is_known else ""))
        elif not (is_known and line.startswith("  ")):
            is_known = False
            lines.append(line)
    return lines


def _render_footer(done: DelegationRound, reports: Sequence[AgentReport]) -> str:
    started = sum(bool(part.run_id) for part in done.parts)
    footers = "\n".join(report.footer for report in reports)
    totals = Counter[str]()
    for count, what in _LOOKED.findall(footers):
        totals[what] += int(count)
    counted = ", ".join(f"{totals[what]} {what}" for what in ("searches", "reads", "listings") if totals[what])
    agents = f"{started} `{AGENT}` {'agent' if started == 1 else 'agents'} in parallel"
    looked = f"{agents}: {counted}" if counted else f"Asked: {agents}"
    paths = list(dict.fromkeys(path for row in _READ.findall(footers) for path in re.findall(r"`([^`]+)`", row)))
    if paths:
        looked += f" (read {', '.join(f'`{path}`' for path in paths[:5])}{', …' if len(paths) > 5 else ''})"
    looked += "."
    weak = [report.asked for report in reports if report.label in ("none", "failed", "no report yet")]
    if weak:
        looked += f" Not answered: {'; '.join(weak)}"
    missing = dict.fromkeys(word for row in re.findall(r"Not found: ([^.\n]*)\.", footers) for word in row.split(", "))
    if missing:
        looked += f" Not found: {', '.join(missing)}."
    if "Some results were cut off" in footers:
        looked += " Some results were cut off, so there may be more."
    return f"---\n{looked}\n{NOTE}"
