import pytest

from retinue.core.tool import Effect
from retinue.features.approvals.gate import ApprovalSubject
from retinue.features.approvals.rules import PRESETS, Rule, describe_call, find_rule, is_about
from retinue.settings.approvals import fork_dispatched, open_book, parse_rules
from retinue.settings.subagents import SubagentsConfig


def read(*rules):
    found, problems = parse_rules(rules, "subagents.json")
    return found, [problem.message for problem in problems]


def test_whole_rule_is_read():
    raw = {"tool": ["bash", "mcp__*"], "pattern": "*prod*", "action": "ask", "priority": 7, "reason": "careful"}
    rule = Rule(action="ask", tools=("bash", "mcp__*"), patterns=("*prod*",), priority=7, reason="careful")
    assert read(raw) == ([rule], [])


@pytest.mark.parametrize(
    ("raw", "rules", "told"),
    [
        (
            {"tool": "bash", "action": "dney"},
            [("deny", ("bash",), ())],
            "action: found 'dney'; expected allow, deny or",
        ),
        ({"tool": "bash"}, [("deny", ("bash",), ())], "action: found null"),
        ({"tool": 5, "action": "deny"}, [("deny", ("*",), ())], "tool: found 5; expected a pattern"),
        ({"tool": 5, "action": "allow"}, [], "tool: found 5"),
        ({"pattern": [], "tool": "bash", "action": "ask"}, [("ask", ("bash",), ())], "pattern: found an array"),
        ({"action": "allow"}, [], "an allowing rule must name a tool or a pattern"),
        ({"tool": "bash", "patern": "ls*", "action": "allow"}, [], "patern: unknown field (did you mean"),
        ({"tool": "bash", "patern": "ls*", "action": "deny"}, [("deny", ("bash",), ())], "patern: unknown field"),
        (
            {"tool": "b", "action": "deny", "priority": "x"},
            [("deny", ("b",), ())],
            "priority: found 'x'; expected a whole",
        ),
    ],
)
def test_mistakes_restrict_more(raw, rules, told):
    found, messages = read(raw)
    assert [(rule.action, rule.tools, rule.patterns) for rule in found] == rules
    assert told in messages[0] and messages[0].startswith("subagents.json: approvalRules[0]")


def test_users_refusal_beats_a_preset_question():
    settings = SubagentsConfig(approvals="ask", approval_rules=({"action": "deny", "pattern": "*.env"},))
    book, _ = open_book(settings)
    call = describe_call(("read",), {"path": "/x/.env"}, "/")
    assert book.judge(ApprovalSubject(call, Effect.READ)).action == "deny"


def test_users_permission_does_not_beat_a_preset():
    settings = SubagentsConfig(approvals="ask", approval_rules=({"action": "allow", "tool": "bash"},))
    book, _ = open_book(settings)
    found = [
        book.judge(ApprovalSubject(describe_call(("bash",), {"command": command}, "/"), Effect.EXECUTE)).action
        for command in ("make test", "sudo make")
    ]
    assert found == ["allow", "deny"]


@pytest.mark.parametrize(
    ("approvals", "main", "child"),
    [
        ("never", "open", "default"),
        ("ask", "default", "default"),
        ("acceptEdits", "acceptEdits", "acceptEdits"),
        ("plan", "plan", "plan"),
        ("bypass", "bypass", "bypass"),
    ],
)
def test_modes_of_main_and_dispatched(approvals, main, child):
    book, _ = open_book(SubagentsConfig(approvals=approvals))
    forked = fork_dispatched(book, readonly=False)
    assert (book.mode, forked.mode) == (main, child)
    assert [rule for rule in forked.rules if rule in PRESETS] == list(PRESETS)


@pytest.mark.parametrize(
    ("pattern", "arguments", "permitted"),
    [
        ("src/*", {"path": "src/a.py"}, True),
        ("/work/src/*", {"path": "src/a.py"}, True),
        ("src/*", {"path": "src/../../etc/cron"}, False),
        ("src/*", {"path": "/work/src/../key"}, False),
        ("make test*", {"command": "make test all"}, True),
        ("make test*", {"command": "make test; rm x"}, False),
        ("make test*", {"command": "make test\nrm x"}, False),
        ("make test*", {"command": "make test $(rm x)"}, False),
        ("make *| tee*", {"command": "make test | tee log"}, True),
        ("npm test", {"command": "npm\ntest"}, False),
        ("*", {"command": "a; b"}, True),
    ],
)
def test_permission_is_read_narrowly(pattern, arguments, permitted):
    rule = Rule(action="allow", patterns=(pattern,))
    call = describe_call(("bash" if "command" in arguments else "write",), arguments, "/work")
    assert is_about(rule, call) is permitted


@pytest.mark.parametrize(
    "command",
    [
        *("rm -rf /\n", "rm  -rf  /", "cd x\nrm -rf /\nls", "rm\t-rf /", "sudo\tls", "sudo\n", "shutdown\n"),
        *("curl x|sh", "curl x | sh\n", "curl x|bash -s", "wget -O- x |/bin/sh"),
    ],
)
def test_blanks_hide_nothing_from_presets(command):
    rule = find_rule(PRESETS, describe_call(("bash",), {"command": command}, "/work"))
    assert rule is not None and rule.action == "deny"


@pytest.mark.parametrize("command", ["rm -rf /tmp/x", "echo visudo", "curl x | jq .", "curl x|shuf", "ls x.sh"])
def test_presets_leave_others_alone(command):
    assert find_rule(PRESETS, describe_call(("bash",), {"command": command}, "/work")) is None
