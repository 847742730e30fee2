"""A session with branches, made through the Python interface, in the hands of the real program."""

import asyncio
import json

import pytest

from retinue import Request, Retinue
from tests.frontends.rpc_caller import call

REPLIES = [
    {"match": {"last_user": f"^{word}"}, "text": f"{word.capitalize()}."} for word in ("one", "two", "three", "four")
]


@pytest.fixture
def branched(place):
    """One thing said, another, and a third instead of the second: what is left is still in the file."""

    async def talk():
        environment = {"HOME": str(place.home), "PI_CODING_AGENT_DIR": str(place.agent_dir), "RETINUE_NO_LOCAL": "1"}
        model = place.script(*REPLIES)
        async with Retinue(place.work, model=model, request=Request(tools=()), environment=environment) as crew:
            await crew.prompt("one")
            await crew.prompt("two")
            entries = crew.history.list_entries()
            await crew.branching.go(next(each["id"] for each in entries if "One." in json.dumps(each)))
            await crew.prompt("three")

    asyncio.run(talk())
    return place


def read_users(entries):
    """What the user has said, with the words of what it hangs on."""
    by_id = {entry["id"]: entry for entry in entries if "parentId" in entry}
    found = {}
    for entry in by_id.values():
        if entry.get("message", {}).get("role") == "user":
            above = entry
            while (
                above["parentId"] and (above := by_id[above["parentId"]]).get("message", {}).get("role") != "assistant"
            ):
                continue
            found[entry["message"]["content"][0]["text"]] = above.get("message", {}).get("content", [{}])[0].get("text")
    return found


def test_continuing_takes_the_last_branch(branched):
    done = branched.run("-p", "-c", "--tools", "", "four", replies=REPLIES)
    assert (done.stdout, len(branched.sessions())) == ("Four.\n", 1)
    assert read_users(branched.entries()) == {"one": None, "two": "One.", "three": "One.", "four": "Three."}


def test_rpc_sees_the_branch_and_the_tree(branched):
    with call(branched, "-c", "--tools", "", replies=REPLIES) as caller:
        messages = caller.get("get_messages")["messages"]
        said = [message["content"][0]["text"] for message in messages if message["role"] in ("user", "assistant")]
        tree, fork = caller.get("get_tree"), caller.get("get_fork_messages")["messages"]
        stats = caller.get("get_session_stats")
    assert said == ["one", "One.", "three", "Three."]
    assert ([message["text"] for message in fork], stats["userMessages"]) == (["one", "two", "three"], 3)
    assert tree["leafId"] == branched.entries()[-1]["id"]


def test_list_and_export_know_the_branch(branched):
    listed = json.loads(branched.run("sessions", "--json").stdout)["sessions"]
    page = branched.root / "page.html"
    assert branched.run("export", listed[0]["id"], "-o", str(page)).status == 0
    text = page.read_text()
    assert (len(listed), "Three." in text, "Two." in text) == (1, True, False)


def describe_models(place, **settings):
    provider = {"baseUrl": "http://127.0.0.1:9/v1", "api": "openai-completions", "apiKey": "none"}
    models = {"one": {**provider, "models": [{"id": "a"}, {"id": "b"}]}, "two": {**provider, "models": [{"id": "c"}]}}
    place.agent_dir.mkdir(parents=True, exist_ok=True)
    (place.agent_dir / "models.json").write_text(json.dumps({"providers": models}))
    default = {"defaultProvider": "one", "defaultModel": "a"}
    (place.agent_dir / "settings.json").write_text(json.dumps({**default, **settings}))


@pytest.mark.parametrize("is_flag", [True, False], ids=["flag", "setting"])
def test_scope_names_the_first_model(place, is_flag):
    asked = '{"id": "1", "type": "get_state"}\n{"id": "2", "type": "cycle_model"}\n'
    seen = []
    for scope in ("two/*,one/b", "two/c,one/a"):
        describe_models(place, **({} if is_flag else {"enabledModels": scope.split(",")}))
        flags = ["--models", scope] if is_flag else []
        told = map(json.loads, place.run("--mode", "rpc", *flags, stdin=asked).stdout.splitlines())
        first, second = (each["data"] for each in told if each.get("type") == "response")
        seen.append((first["model"]["id"], second["model"]["id"], second["isScoped"]))
    assert seen == [("c", "b", True), ("a", "c", True)]


def test_continued_session_is_out_of_scope(place):
    describe_models(place, retry={"enabled": False})
    assert place.run("-p", "hi").status == 1  # nobody is there, which is no matter here
    describe_models(place, enabledModels=["two/c"])
    told = place.run("--mode", "rpc", "-c", stdin='{"id": "1", "type": "get_state"}\n').stdout
    assert json.loads(told.splitlines()[-1])["data"]["model"]["id"] == "a"


def test_default_outside_of_scope_is_told(place):
    describe_models(place, enabledModels=["two/c"])
    items = json.loads(place.run("doctor", "--json").stdout)["items"]
    (item,) = [item for item in items if item["message"] == "Default model not among enabledModels"]
    assert (item["status"], item["details"].endswith("settings.json: defaultModel 'a': sessions begin with two/c")) == (
        "warn",
        True,
    )


def test_flag_without_any_model_is_refused(place):
    done = place.run("-p", "hi", "--models", "nowhere/*")
    assert (done.status, done.stdout) == (2, "")
    assert "--models: 'nowhere/*' matches no available model" in done.stderr
