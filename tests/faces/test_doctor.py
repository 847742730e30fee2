import json
import os
import re

import pytest


@pytest.fixture
def doctor(place):
    """Runs `retinue doctor --json` and gives back its status and its items."""

    def run(*args, env=None):
        done = place.run("doctor", "--json", *args, env=env)
        report = json.loads(done.stdout)
        statuses = [item["status"] for item in report["items"]]
        counted = {
            "passed": statuses.count("pass"),
            "warnings": statuses.count("warn"),
            "failed": statuses.count("fail"),
        }
        assert (report["summary"], set(statuses) <= {"pass", "warn", "fail", "info"}) == (counted, True)
        return done.status, report["items"]

    return run


def of(items, category):
    return [(item["status"], item["message"]) for item in items if item["category"] == category]


@pytest.mark.spec("devkit:60")
def test_fresh_home_is_fine(doctor):
    status, items = doctor()
    assert status == 0
    assert {"python", "git", "search", "permissions", "config", "trust", "models", "agents", "terminal"} <= {
        item["category"] for item in items
    }
    assert of(items, "config") == [("info", "Using default configuration")]
    assert of(items, "models") == [("warn", "No language model, only the built-in rules")]
    assert of(items, "agents") == [("pass", "11 builtin agents discovered")]


def test_broken_configuration_fails(place, doctor):
    (place.agent_dir / "settings.json").write_text('{"defaultModel": }')
    (place.agent_dir / "subagents.json").write_text('{"maxConcurrent": 0, "maxConcurent": 2}')
    status, items = doctor()
    assert (status, of(items, "config")) == (
        1,
        [("fail", "Configuration error"), ("fail", "Configuration error"), ("warn", "Configuration remark")],
    )
    details = [item["details"] for item in items if item["category"] == "config"]
    assert details[0].startswith(f"{place.agent_dir}/settings.json:1:")
    assert details[1].endswith("maxConcurrent: found 0; expected a whole number from 1 to 1024")
    assert details[2].endswith("unknown setting 'maxConcurent' (did you mean 'maxConcurrent'?)")


@pytest.mark.spec("devkit:61")
def test_agent_files_are_told_by_line(place, doctor):
    folder = place.agent_dir / "agents"
    folder.mkdir()
    (folder / "broken.md").write_text("---\ntools: [read, bash\n---\nx\n")
    (folder / "README.md").write_text("# Agents\n")
    (folder / "typo.md").write_text("---\nname: typo\ndescription: d\ntools: raed\nreadonly: tru\n---\nDo.\n")
    (folder / "explorer.md").write_text("---\nname: explorer\ndescription: d\n---\nDo.\n")
    status, items = doctor()
    told = "\n".join(f"{item['message']}: {item['details']}" for item in items if item["category"] == "agents")
    assert (status, "2 user agents found: explorer, typo" in told) == (0, True)
    assert f"Agent file skipped: {folder}/broken.md:" in told
    assert f"Agent file skipped: {folder}/README.md" in told
    assert f"Agent file remark: {folder}/typo.md:4: tools: there is no tool 'raed'" in told
    assert f"{folder}/typo.md:5:" in told
    assert f"is hidden by {folder}/explorer.md" in told


def test_untrusted_project_is_a_warning(place, doctor):
    (place.work / ".pi" / "agents").mkdir(parents=True)
    status, items = doctor()
    assert (status, of(items, "trust")) == (0, [("warn", "This project is not trusted")])
    assert of(doctor("--approve")[1], "trust") == [("pass", "This project is trusted")]


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_open_agent_directory_fails(place, doctor):
    place.agent_dir.chmod(0o777)
    status, items = doctor()
    assert (status, of(items, "permissions")[0]) == (1, ("fail", "Agent directory not safe"))


def test_missing_programs_are_told(place, doctor):
    status, items = doctor(env={"PATH": "relative:/nowhere"})
    assert (status, of(items, "git")) == (0, [("warn", "git not found")])


def test_programs_of_the_project_are_not_run(place, doctor):
    for name in ("git", "rg", "bwrap"):
        path = place.work / name
        path.write_text(f"#!/bin/sh\ntouch {place.root}/canary\n")
        path.chmod(0o755)
    doctor(env={"PATH": f".:{os.environ['PATH']}"})
    assert not (place.root / "canary").exists()


def test_unknown_default_model_is_told(place, doctor):
    (place.agent_dir / "settings.json").write_text('{"defaultModel": "no-such-model"}')
    status, items = doctor()
    assert (status, of(items, "models")[0]) == (0, ("warn", "Default model not usable"))


def test_report_leaves_nothing_behind(place, doctor):
    doctor()
    left = [path.name for path in place.root.rglob("*") if path.is_file()]
    assert left == []


def test_text_has_a_summary(place):
    done = place.run("doctor")
    assert (done.status, done.stderr) == (0, "")
    assert re.match(r"\d+ passed, \d warnings, 0 failed\n\n\[PYTHON\]\n  \[PASS\] Python 3", done.stdout)
    assert "[AGENTS]\n  [PASS] 11 builtin agents discovered\n" in done.stdout
