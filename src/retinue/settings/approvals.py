"""Builds approval rules and modes from the user's settings; a project's settings are never used."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from retinue.core.diagnostics import Diagnostic, show_value, suggest
from retinue.features.approvals.gate import Mode, RunRules
from retinue.features.approvals.rules import PRESETS, Action, Rule
from retinue.settings.subagents import SubagentsConfig

FIELDS = ("tool", "pattern", "action", "priority", "reason")
_ACTIONS: Mapping[str, Action] = {"allow": "allow", "deny": "deny", "ask": "ask"}
MODES: Mapping[str, Mode] = {"ask": "default", "acceptEdits": "acceptEdits", "plan": "plan", "bypass": "bypass"}
_PRIORITIES: Mapping[Action, int] = {"deny": 100, "ask": 75, "allow": 0}
"""Default priorities. A preset never weakens a deny rule, and an allow rule never weakens a preset."""
MAX_PRIORITY = 1_000_000


def open_book(
    settings: SubagentsConfig, where: str = "approvalRules", *, find_mode: Callable[[], str] | None = None
) -> tuple[RunRules, list[Diagnostic]]:
    """Build the approval rules of the main agent; `where` names the file in messages.

    `find_mode` returns the session's mode, which the user may change.
    """
    rules, problems = parse_rules(settings.approval_rules, where)
    find = find_mode or (lambda: settings.approvals)
    return RunRules(rules, lambda: MODES.get(find(), "open")), problems


def fork_dispatched(run_rules: RunRules, *, readonly: bool) -> RunRules:
    """Build the approval rules for a `dispatch` run: CodingCode's layers, whatever the main agent uses."""
    extra = [rule for rule in PRESETS if rule not in run_rules.rules]
    mode: Mode = "default" if run_rules.mode == "open" else run_rules.mode
    return run_rules.fork(mode=mode, extra=extra, readonly=readonly)


def parse_rules(raw: Sequence[Any], where: str) -> tuple[list[Rule], list[Diagnostic]]:
    """Parse the rules of a file. An error in a restricting rule makes it restrict more, never less."""
    rules: list[Rule] = []
    problems: list[Diagnostic] = []
    for index, entry in enumerate(raw):

        def report(field: str, text: str, place: str = f"approvalRules[{index}]") -> None:
            name = f"{place}.{field}" if field else place
            problems.append(Diagnostic(f"{where}: {name}: {text}", where, code="approval-rule", field=name))

        rule = _parse_rule(entry, report) if isinstance(entry, Mapping) else None
        if rule is not None:
            rules.append(rule)
    return rules, problems


def _parse_rule(entry: Mapping[str, Any], report: Any) -> Rule | None:
    action = _ACTIONS.get(str(entry.get("action")))
    for field in entry:
        if field not in FIELDS:
            report(field, f"unknown field{suggest(str(field), FIELDS)}; expected {', '.join(FIELDS)}")
            if action == "allow":
                return None  # the unknown field may have been meant to narrow the rule
    if action is None:
        report("action", f"found {show_value(entry.get('action'))}; expected allow, deny or ask; the rule denies")
        action = "deny"
    tools, patterns = _read_globs(entry, "tool", report), _read_globs(entry, "pattern", report)
    if (tools is None or patterns is None) and action == "allow":
        return None
    if action == "allow" and not (tools or patterns):
        report("", "an allowing rule must name a tool or a pattern; set approvals to bypass to allow everything")
        return None
    return Rule(
        action=action,
        tools=tools or ("*",),
        patterns=patterns or (),
        priority=_read_priority(entry, _PRIORITIES[action], report),
        reason=entry["reason"] if isinstance(entry.get("reason"), str) else "",
    )


def _read_globs(entry: Mapping[str, Any], field: str, report: Any) -> tuple[str, ...] | None:
    """Return the globs of a field; empty if it is missing, None if they are invalid."""
    value = entry.get(field)
    if value is None:
        return ()
    globs = [value] if isinstance(value, str) else value
    if not isinstance(globs, list) or not globs or not all(isinstance(each, str) and each for each in globs):
        report(field, f"found {show_value(value)}; expected a pattern such as *.pem, or a list of them")
        return None
    return tuple(globs)


def _read_priority(entry: Mapping[str, Any], default: int, report: Any) -> int:
    value = default if entry.get("priority") is None else entry["priority"]
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_PRIORITY:
        report("priority", f"found {show_value(value)}; expected a whole number; {default} is used")
        return default
    return value
