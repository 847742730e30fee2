import os

import pytest

from retinue.testing.process import open_cli

LEAD = "---\nname: lead\ndescription: d\ntools: Agent, bash\nallowed_subagents: digger\n{keeping}---\n\nLead.\n"
DIGGER = "---\nname: digger\ndescription: d\ntools: bash\n---\n\nDig.\n"


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def start(agent, task):
    arguments = {"prompt": task, "description": task, "subagent_type": agent}
    return [{"name": "Agent", "arguments": arguments}]


STORY = (
    to("^go", calls=start("lead", "lead on")),
    to("^lead on", calls=start("digger", "dig")),
    to("^dig", text="Found a bone", calls=[{"name": "bash", "arguments": {"command": "touch deep; sleep 41"}}]),
    to("deeper", text="A whole skeleton"),
    to("", text="Well"),
)


def read_ends(place):
    """How the runs have ended, by agent, as the main session has it."""
    facts = [entry["data"] for entry in place.entries() if entry.get("customType") == "retinue.crew"]
    agents = {fact["runId"]: fact["run"]["agent"] for fact in facts if fact["type"] == "RunQueued"}
    return {agents[fact["runId"]]: fact for fact in facts if fact["type"] == "RunFinished"}


@pytest.mark.here("a run that is sent away outlives whoever has sent it")
@pytest.mark.parametrize("keeping", ["", "persist_session: true\nsession_dir: ~/kept\n", "persist_session: false\n"])
def test_killed_run_below_keeps_its_words(place, keeping):
    folder = place.agent_dir / "agents"
    folder.mkdir(parents=True)
    (folder / "lead.md").write_text(LEAD.format(keeping=keeping))
    (folder / "digger.md").write_text(DIGGER)
    with open_cli(["--model", place.script(*STORY), "-p", "go"], place.work, home=place.home) as process:
        while not (place.work / "deep").exists():
            assert process.poll() is None
        os.kill(process.pid, 9)
    place.run("-c", "-p", "what is there?", replies=STORY)
    outcome = read_ends(place)["digger"]["outcome"]
    seen = {name: outcome.get(name) for name in ("status", "reason", "text", "is_unbegun")}
    assert seen == {"status": "interrupted", "reason": "crash", "text": "Found a bone", "is_unbegun": False}
