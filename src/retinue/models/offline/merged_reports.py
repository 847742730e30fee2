"""Merge several reports into one answer, each under its question, with one footer.

This file must not know how the reports were fetched.
"""

import re
from collections.abc import Sequence

from msgspec import Struct

from retinue.models.offline.answer import NOTE
from retinue.models.offline.delegation import AGENT, DelegatedPart, DelegationRound, RunNotice
from retinue.models.offline.quotes import shorten


class AgentReport(Struct, frozen=True):
    asked: str
    label: str
    """The confidence, or the status of the run."""
    body: str


def read_report(part: DelegatedPart) -> AgentReport:
    """The report of one subagent, without the note about this model."""
    asked, body = part.question, part.report.replace(NOTE, "").strip()
    if part.is_success:
        sure = re.search(r"^---\nConfidence: (\w+)\. ", body, re.MULTILINE)
        body = re.sub(r"^---\nConfidence: \w+\. ", "", body, flags=re.MULTILINE)
        return AgentReport(asked, sure.group(1) if sure else "", body or "The agent said nothing.")
    if not part.status:
        return AgentReport(asked, "no report yet", "The agent was still at work.")
    said = f"There is no complete report: {shorten(part.status, 200)}."
    return AgentReport(asked, "failed", f"{said}\n\n{body}".strip())


def merge_round(done: DelegationRound) -> str:
    """The answer to the question that was split into these parts."""
    reports = [read_report(part) for part in done.parts]
    lines: list[str] = []
    for report in reports:
        label = f" ({report.label})" if report.label else ""
        lines += [f"### {report.asked}{label}", report.body, ""]
    started = sum(bool(part.run_id) for part in done.parts)
    footer = f"{started} `{AGENT}` {'agent' if started == 1 else 'agents'} searched in parallel."
    weak = [report.asked for report in reports if report.label in ("none", "failed", "no report yet")]
    footer += f" Not answered: {'; '.join(weak)}" if weak else ""
    return "\n".join([*lines, f"---\n{footer}\n{NOTE}"])


def render_other_notices(notices: Sequence[RunNotice]) -> str:
    """Report on runs that this model did not start."""
    told = [
        f"{notice.summary or f'Agent {notice.run_id}'}: {shorten(notice.status, 200)}.\n\n{notice.preview}\n"
        for notice in notices
    ]
    return "\n".join([*told, NOTE])
