import json

import pytest

WRITER = "---\nname: writer\ndescription: Writes\ntools: read, write\n---\n\nWrite.\n"
RUNNER = "---\nname: runner\ndescription: Runs\ntools: read, bash\n---\n\nRun.\n"
READER = "---\nname: reader\ndescription: Reads\ntools: read, web_search\n---\n\nRead.\n"


def list_agents(place, **environment):
    done = place.run("agents", "--json", env=environment)
    return {agent["name"]: agent for agent in json.loads(done.stdout)["agents"]}


def test_agent_that_can_only_read_is_labelled_so(place):
    folder = place.agent_dir / "agents"
    folder.mkdir(parents=True)
    for name, text in {"writer": WRITER, "runner": RUNNER, "reader": READER}.items():
        (folder / f"{name}.md").write_text(text)
    agents = list_agents(place)
    names = ("scout", "reader", "Explore", "writer", "runner", "general-purpose")
    assert [agents[name]["readonly"] for name in names] == [True, True, True, False, False, False]
    rows = place.run("agents").stdout
    assert [rows.count("(read-only · sticky"), rows.count("readonly")] == [1, 0]


def test_agent_with_extensions_may_do_more(place):
    (place.agent_dir / "extensions").mkdir(parents=True)
    (place.agent_dir / "extensions" / "x.py").write_text("def register(api):\n    pass\n")
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "reader.md").write_text(READER)
    assert list_agents(place)["reader"]["readonly"] is False


@pytest.mark.parametrize(("key", "model"), [("OPENAI_API_KEY", None), ("ANTHROPIC_API_KEY", "haiku")])
def test_missing_model_is_not_advertised(place, key, model):
    assert list_agents(place, **{key: "k"})["Explore"]["model"] == model
    shown = place.run("agents", "show", "Explore", env={key: "k"}).stdout
    wish = "model     haiku (preferred)" if model else "model     the caller's (haiku is preferred but not available)"
    assert wish in shown.splitlines()
