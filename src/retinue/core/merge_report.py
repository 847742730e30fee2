"""What a merge queue did: which branches have landed on the target, which stayed behind and why. Data only."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct, to_builtins

LandingMode: TypeAlias = Literal["off", "ask", "auto"]
RefusalReason: TypeAlias = Literal["conflict", "verify", "flaky", "gone", "protected"]


class LandRequest(Struct, frozen=True):
    """Which branches are to land where."""

    branches: tuple[str, ...] = ()
    takes_all: bool = False
    """All branches of runs that have not landed."""
    onto: str = ""
    """Empty: the branch that is checked out."""
    is_dry: bool = False
    verifies: bool = True


class Refused(Struct, frozen=True, rename={"with_": "with"}):
    """A branch that stayed behind."""

    branch: str
    reason: RefusalReason
    with_: tuple[str, ...] = ()
    """Branches that it conflicts with, or that had landed before it when its check failed."""
    output: str = ""
    """What git or the failed command printed."""
    text: str = ""
    """What happened and what to do."""


class Flaky(Struct, frozen=True):
    """A check that had different results on the same tree."""

    command: str
    commit: str
    results: tuple[Literal["passed", "failed"], ...]
    """In order."""


class MergeReport(Struct, frozen=True, rename={"is_dry": "dryRun"}):
    target: str
    before: str
    after: str
    landed: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    flaky: tuple[Flaky, ...] = ()
    notes: tuple[str, ...] = ()
    """Messages for the user, such as why the checkout was left alone."""
    is_dry: bool = False
    """Nothing was changed; `landed` is what would land."""


class MergeStep(Struct, frozen=True):
    """One step of a queue, for people who watch."""

    kind: Literal["started", "checking", "checked", "landed", "refused", "asking", "note", "ended"]
    branches: tuple[str, ...] = ()
    text: str = ""


class BranchState(Struct, frozen=True):
    branch: str
    state: Literal["waiting", "checking", "landed", "behind"]
    text: str = ""
    """Why it stayed behind."""


def describe_report(report: MergeReport) -> dict[str, Any]:
    """Return the JSON object of a report."""
    return dict(to_builtins(report))


def render_report(report: MergeReport) -> list[str]:
    """Return the lines that tell a person or a model the result."""
    verb = "would land" if report.is_dry else "landed"
    lines = [f"{verb}: {name}" for name in report.landed]
    for item in report.refused:
        lines.append(f"stayed behind: {item.branch} ({item.reason}): {item.text}")
        lines += [f"    {line}" for line in item.output.splitlines()[-12:]]
    for check in report.flaky:
        lines.append(f"flaky: `{check.command}` on {check.commit[:12]}: {', '.join(check.results)}")
    lines += report.notes
    moved = report.after != report.before
    state = f"{report.before[:12]} -> {report.after[:12]}" if moved else f"unchanged at {report.before[:12]}"
    return [*lines, f"{report.target}: {state}"]
