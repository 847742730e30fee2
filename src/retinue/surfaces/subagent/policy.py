"""What the main agent is told about when to delegate: a hint in its prompt, not a rule that anything enforces. Pure."""

from collections.abc import Collection

SPECIALTIES = {
    "explorer": "finding things in the code: where something is, how parts hang together",
    "researcher": "sources outside the repository: looking up, comparing, summing up",
    "reviewer": "judging code: faults, risks, the shape of a design",
    "implementer": "working out how a change is to be made, step by step",
    "tester": "what to test and how: strategy, edge cases, gaps in the coverage",
}
EXAMPLES = (
    ("Where do we check permissions?", "explorer"),
    ("找出所有读取配置文件的地方", "explorer"),
    ("Which of these two libraries is better maintained?", "researcher"),
    ("帮我检查一下这个模块的代码质量", "reviewer"),
    ("How would we add rate limiting here?", "implementer"),
    ("这个函数还缺哪些边界情况的测试?", "tester"),
)


def render_policy(agents: Collection[str]) -> str:
    """The hint about those of the specialists that are there; empty when none is."""
    known = {name: text for name, text in SPECIALTIES.items() if name in agents}
    if not known:
        return ""
    lines = [
        "## Subagent Delegation Policy",
        "",
        "When a request, or a part of it, is the specialty of an agent, prefer to give it to that agent by `subagent`:",
        *(f"- {name}: {text}" for name, text in known.items()),
        "",
        "Delegate what is focused and can be told in a few sentences. Do directly what is simple or takes one look.",
        "",
        "## Delegation Examples",
        "",
        *(f"- {request} → {name}" for request, name in EXAMPLES if name in known),
    ]
    return "\n".join(lines)
