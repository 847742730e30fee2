"""What is said to agents goes to the provider that the user chose, whatever other keys there are."""

import json
from contextlib import ExitStack

import pytest

from retinue.testing import MockServer
from retinue.testing.process import open_cli

KEYS = {"ANTHROPIC_API_KEY": "key-a", "OPENAI_API_KEY": "key-o"}
HAIKU = "claude-haiku-5-5"
LOOK = {"subagent_type": "Explore", "prompt": "look", "description": "a look"}
GENERAL = {**LOOK, "subagent_type": "general-purpose"}


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def say(*calls):
    """The main agent makes these calls; whoever is told to look has found something."""
    made = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return [to("^begin", calls=made), to("^begin", text="begun"), to("^look", text="found"), to(".", text="thanks")]


class Providers:
    """A place with keys for two providers, both of them on this machine."""

    def __init__(self, place, servers):
        self.place = place
        self.servers = servers

    def run(self, *args, **options):
        return self.place.run(*args, env={**KEYS, **options.pop("env", {})}, **options)

    def asked(self):
        """The models that each provider was asked for."""
        posts = {name: [each.json for each in server.requests] for name, server in self.servers.items()}
        return {name: [body["model"] for body in bodies] for name, bodies in posts.items()}

    def configure(self, name, text):
        path = self.place.agent_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text))


@pytest.fixture
def providers(place):
    with ExitStack() as stack:
        apis = {"anthropic": "anthropic-messages", "openai": "openai-responses"}
        servers = {name: stack.enter_context(MockServer.in_thread(say(("Agent", LOOK)))) for name in apis}
        found = Providers(place, servers)
        urls = {name: {"baseUrl": server.base_url(apis[name])} for name, server in servers.items()}
        found.configure("models.json", {"providers": urls})
        yield found


def agent_file(model, **fields):
    lines = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return f"---\nname: scout9\ndescription: d\nmodel: {model}\n{lines}---\n\nLook.\n"


NOBODY = {"anthropic": [], "openai": []}


def test_builtin_wish_stays_with_the_chosen_provider(providers):
    done = providers.run("run", "Explore", "look", "--model", providers.place.script({"text": "found"}))
    assert (done.status, done.stdout.strip(), done.stderr) == (0, "found", "")
    assert providers.asked() == NOBODY


def test_builtin_wish_is_granted_at_home(providers):
    done = providers.run("-p", "begin", "--model", "anthropic/claude-sonnet-5")
    assert (done.status, done.stdout.strip()) == (0, "thanks")
    asked = providers.asked()
    assert (set(asked["anthropic"]), asked["openai"]) == ({"claude-sonnet-5", HAIKU}, [])


def test_builtin_wish_takes_the_other_main_model(providers):
    done = providers.run("-p", "begin", "--model", "openai/gpt-5.5")
    assert (done.status, done.stdout.strip(), done.stderr) == (0, "thanks", "")
    assert providers.asked() == {"anthropic": [], "openai": ["gpt-5.5"] * 4}


@pytest.mark.parametrize("listed", [f"anthropic/{HAIKU}", "anthropic/*haiku*", HAIKU])
def test_listed_model_may_be_wished_for(providers, listed):
    providers.configure("settings.json", {"enabledModels": ["openai/gpt-5.5", listed]})
    done = providers.run("-p", "begin", "--model", "openai/gpt-5.5")
    assert (done.status, providers.asked()) == (0, {"anthropic": [HAIKU], "openai": ["gpt-5.5"] * 3})


def test_models_flag_lists_models_too(providers):
    done = providers.run("-p", "begin", "--models", f"openai/gpt-5.5,anthropic/{HAIKU}")
    assert (done.status, providers.asked()) == (0, {"anthropic": [HAIKU], "openai": ["gpt-5.5"] * 3})


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "named",
    ["haiku", HAIKU, f"anthropic/{HAIKU}", f"Anthropic/{HAIKU}:high", "anthropic/haiku", f"bridge/anthropic:{HAIKU}"],
)
def test_calling_model_stays_with_the_provider(providers, named):
    replies = say(("Agent", {**GENERAL, "model": named}))
    done = providers.run("-p", "--mode", "json", "begin", replies=replies)
    assert (done.status, providers.asked()) == (0, NOBODY)
    (told,) = [each for each in done.lines if each["type"] == "tool_execution_end"]
    text = told["result"]["content"][0]["text"]
    assert "Agent started" in text and f'Note: model "{named}" belongs to provider anthropic' in text
    assert [each["result"] for each in done.lines if each["type"] == "subagents:completed"] == ["found"]


@pytest.mark.parametrize("named", ["anthropic/claude-unheard-of-9", "bridge/bedrock:claude", "zzz"])
def test_calling_model_cannot_name_what_is_not_listed(providers, named):
    replies = say(("Agent", {**GENERAL, "model": named}))
    done = providers.run("-p", "--mode", "json", "begin", replies=replies)
    assert (done.status, providers.asked()) == (0, NOBODY)
    (told,) = [each for each in done.lines if each["type"] == "tool_execution_end"]
    assert (told["isError"], told["result"]["content"][0]["text"][:16]) == (True, "Model not found:")


def test_exact_model_in_a_file_is_a_choice(providers):
    providers.configure("agents/scout9.md", agent_file(f"anthropic/{HAIKU}"))
    done = providers.run("run", "scout9", "look", "--model", "openai/gpt-5.5")
    assert (done.status, providers.asked()) == (0, {"anthropic": [], "openai": ["gpt-5.5"]})
    replies = say(("Agent", {**LOOK, "subagent_type": "scout9"}))
    done = providers.run("-p", "begin", replies=replies)
    assert (done.status, providers.asked()["anthropic"]) == (0, [HAIKU])


@pytest.mark.parametrize("surface", ["Agent", "subagent"])
@pytest.mark.parametrize("named", ["haiku", HAIKU])
def test_alias_in_a_file_stays_with_the_provider(providers, named, surface):
    providers.configure("agents/scout9.md", agent_file(named))
    providers.configure("subagents.json", {"surfaces": ["fleet", "subagent"]})
    arguments = {"Agent": {**LOOK, "subagent_type": "scout9"}, "subagent": {"agent": "scout9", "task": "look"}}[surface]
    done = providers.run("-p", "--mode", "json", "begin", replies=say((surface, arguments)))
    assert (done.status, providers.asked()) == (0, NOBODY)
    assert "belongs to provider anthropic, which is not the provider of the main model" in done.stderr
    assert f"(write anthropic/{HAIKU} to choose it)" in done.stderr


@pytest.mark.parametrize(("flag", "asked"), [("-a", {"anthropic": [HAIKU], "openai": []}), ("-na", NOBODY)])
def test_project_chooses_once_it_is_trusted(providers, flag, asked):
    folder = providers.place.work / ".pi" / "agents"
    folder.mkdir(parents=True)
    (folder / "scout9.md").write_text(agent_file(f"anthropic/{HAIKU}"))
    replies = say(("Agent", {**LOOK, "subagent_type": "scout9"}))
    done = providers.run("-p", "begin", flag, replies=replies)
    assert (done.status, providers.asked()) == (0, asked)


@pytest.mark.parametrize("settings", [{"runner": "process"}, {"runner": "durable"}])
def test_runners_keep_to_the_provider(providers, settings):
    providers.configure("subagents.json", {**settings, "surfaces": ["fleet", "subagent"]})
    replies = say(("Agent", LOOK), ("subagent", {"agent": "Explore", "task": "look"}))
    done = providers.run("-p", "begin", replies=replies)
    assert (done.status, done.stderr, providers.asked()) == (0, "", NOBODY)


def test_main_agent_of_a_definition_stays_too(providers):
    providers.configure("settings.json", {"defaultModel": "openai/gpt-5.5"})
    done = providers.run("-p", "look", "--agent", "Explore")
    assert (done.status, providers.asked()) == (0, {"anthropic": [], "openai": ["gpt-5.5"]})


def test_dispatched_profile_stays_with_the_provider(providers):
    providers.configure("subagents.json", {"surfaces": ["dispatch"]})
    folder = providers.place.home / ".codingcode" / "agents"
    folder.mkdir(parents=True)
    replies = say(("dispatch_agent", {"agent": "scout9", "prompt": "look"}))
    for named, asked in ((HAIKU, []), (f"{HAIKU}@ANTHROPIC_API_KEY", [HAIKU])):
        (folder / "scout9.md").write_text(agent_file(named))
        done = providers.run("-p", "begin", replies=replies)
        assert (done.status, providers.asked()["anthropic"]) == (0, asked)


def test_mcp_host_gets_the_chosen_model_only(providers):
    place = providers.place
    with open_cli(["mcp", "--model", "offline/rules"], place.work, KEYS, home=place.home, has_stdin=True) as process:
        calls = [
            ("Agent", LOOK),
            ("Agent", {**LOOK, "model": "haiku"}),
            ("subagent", {"agent": "Explore", "task": "look"}),
        ]
        for number, (name, arguments) in enumerate(calls):
            params = {"name": name, "arguments": arguments}
            line = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
            process.stdin.write(json.dumps(line).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            assert not answer["result"].get("isError"), answer
    assert providers.asked() == NOBODY


def test_settings_that_cannot_be_followed_choose_nobody(providers):
    providers.configure("settings.json", {"defaultProvider": "groq"})
    done = providers.run("-p", "look")
    assert (done.status, providers.asked()) == (2, NOBODY)
    assert "the default model of the settings cannot be used (no key for provider groq" in done.stderr
    assert done.stderr.strip().endswith("name another one with --model")


def test_session_goes_on_with_its_own_model_only(providers):
    place = providers.place
    done = providers.run("-p", "look", "--model", place.script({"text": "found"}))
    (path,) = place.sessions()
    path.write_text(path.read_text().replace('"scripted"', '"ollama"'))
    done = providers.run("-p", "-c", "again")
    assert (done.status, providers.asked()) == (2, NOBODY)
    assert "the model of this session cannot be used (no answer from Ollama" in done.stderr


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "no key for provider anthropic"),
        ({"ANTHROPIC_API_KEY": "a", "ANTHROPIC_BASE_URL": "127.0.0.1:7"}, "ANTHROPIC_BASE_URL"),
    ],
)
def test_gateway_is_not_asked_for_another_provider(place, env, said):
    model = "anthropic/claude-haiku-4.5"
    with MockServer.in_thread([to(".", text="hi")]) as gateway:
        place.agent_dir.mkdir(parents=True, exist_ok=True)
        url = gateway.base_url("openai-completions")
        (place.agent_dir / "models.json").write_text(json.dumps({"providers": {"openrouter": {"baseUrl": url}}}))
        keys = {"OPENROUTER_API_KEY": "k", **env}
        refused = place.run("-p", "--model", model, "hi", env=keys)
        (place.agent_dir / "settings.json").write_text(json.dumps({"defaultModel": model}))
        default = place.run("-p", "hi", env=keys)
        asked = len(gateway.requests)
        chosen = place.run("-p", "--model", f"openrouter/{model}", "hi", env=keys)
        assert (asked, len(gateway.requests)) == (0, 1), chosen.stderr
    assert (refused.status, said in refused.stderr, said in default.stderr) == (2, True, True), default.stderr
