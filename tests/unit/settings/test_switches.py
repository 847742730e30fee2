import pytest

from retinue.settings.paths import Paths
from retinue.settings.switches import Switches, load_rules, load_switches


@pytest.fixture
def paths(tmp_path):
    for name in ("home", "work"):
        (tmp_path / name / ".codingcode").mkdir(parents=True)
    return Paths(tmp_path / "work", tmp_path / "work", tmp_path / "home" / ".pi" / "agent", tmp_path / "home")


def load(paths, user="", project="", *, trusted=True):
    for folder, text in ((paths.home, user), (paths.project, project)):
        (folder / ".codingcode" / "config.yaml").write_text(text)
    return load_switches(paths, trusted=trusted)


def test_both_files_are_joined(paths):
    user = "subagent:\n  enabled: false\n  disabledAgents: {A: true, b: true}\nmaxSteps: 9\nother: 1\n"
    project = "subagent:\n  enabled: true\n  disabledAgents: {a: false}\nhooks:\n  disabledHooks: {h: true}\n"
    switches, problems = load(paths, user, project)
    assert (switches, problems) == (Switches(True, {"a": False, "b": True}, ({}, {"h": True}), 9), [])
    assert (switches.is_agent_off("A"), switches.is_agent_off("B"), switches.is_agent_off("c")) == (False, True, False)


def test_untrusted_project_says_nothing(paths):
    assert load(paths, "", "subagent: [", trusted=False) == (Switches(), [])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("subagent: {disabledAgents: true}\n", "subagent.disabledAgents: found true; expected names"),
        ("hooks: {disabledHooks: [a]}\n", "hooks.disabledHooks: found an array; expected names"),
        ("hooks: {disabledHooks: {a: 1}}\n", "hooks.disabledHooks.a: found 1; expected true or false; ignored"),
        ("maxSteps: 0\n", "maxSteps: found 0; expected a whole number from 1 to 100000"),
        ("maxSteps: many\n", "maxSteps: found 'many'"),
        ("other: [\n", "not valid YAML"),
    ],
)
def test_bad_values_count_as_absent(paths, text, told):
    switches, problems = load(paths, text)
    assert switches == Switches() and told in problems[0].message
    assert len(problems) == 1 and problems[0].path == str(paths.home / ".codingcode" / "config.yaml")


@pytest.mark.parametrize(
    ("value", "off", "told"),
    [
        ("[A, b]", {"a": True, "b": True}, "disabledAgents: found an array; expected names, each with true or false; "),
        ("a", {"a": True}, "disabledAgents: found 'a'; expected names, each with true or false; "),
        ("{a: 1, b: false}", {"a": True, "b": False}, "disabledAgents.a: found 1; expected true or false; "),
        ("[[a], b]", {"b": True}, "disabledAgents: found an array; expected names, each with true or false; "),
    ],
)
def test_doubtful_switches_are_off(paths, value, off, told):
    switches, problems = load(paths, f"subagent: {{disabledAgents: {value}}}\n")
    assert switches == Switches(disabled_agents=off)
    assert [(told in each.message, each.message.endswith("disabled")) for each in problems] == [(True, True)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("subagent: {enabled: nope}", "subagent.enabled: found 'nope'; expected true or false; "),
        ("subagent: {enabled: 0}", "subagent.enabled: found 0; expected true or false; "),
        ("subagent: off", "subagent: found 'off'; expected an object, such as {enabled: true}; "),
        ("subagent: true", "subagent: found true; expected an object, such as {enabled: true}; "),
    ],
)
def test_doubtful_main_switch_is_off(paths, text, told):
    path = paths.home / ".codingcode" / "config.yaml"
    switches, problems = load(paths, text + "\n")
    assert switches == Switches(False)
    assert [each.message for each in problems] == [
        f"{path}: {told}no agent is dispatched until this is fixed or removed"
    ]


def test_clear_word_of_project_counts(paths):
    doubt, clear = "subagent: {enabled: nope}\n", "subagent: {enabled: true}\n"
    assert load(paths, doubt, clear)[0] == Switches(True)
    assert load(paths, clear, doubt)[0] == Switches(False)


def test_broken_file_leaves_only_clear_words_of_project(paths):
    broken, clear = "subagent: [\n", "subagent: {enabled: true, disabledAgents: {a: false}}\n"
    switches, (problem,) = load(paths, broken, clear)
    assert switches == Switches(True, {"a": False}, broken=problem.message)
    assert (switches.is_agent_off("A"), switches.is_agent_off("b")) == (False, True)
    switches, (problem,) = load(paths, clear, broken)
    assert switches == Switches(False, broken=problem.message) and switches.is_agent_off("a")


def test_rules_are_read(paths):
    assert load_rules(paths) == ((), [])
    (paths.home / ".codingcode" / "rules.md").write_text("Be brief.\n")
    assert load_rules(paths) == (("Be brief.\n",), [])
    (paths.home / ".codingcode" / "rules.md").write_bytes(b"\xff\xfe")
    assert "not UTF-8 text" in load_rules(paths)[1][0].message
