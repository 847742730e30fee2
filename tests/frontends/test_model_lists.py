"""Where providers are asked, and models of theirs that the catalogue does not know."""

import json
import stat

import pytest

from retinue.testing import MockServer
from retinue.testing.process import open_cli
from tests.frontends.rpc_caller import Caller

BASES = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "", "/v1/messages"),
    "openai": ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1", "/v1/responses"),
    "google": ("GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "", "/v1beta/models/"),
    "groq": ("GROQ_API_KEY", "GROQ_BASE_URL", "", "/openai/v1/chat/completions"),
    "cerebras": ("CEREBRAS_API_KEY", "CEREBRAS_BASE_URL", "", "/v1/chat/completions"),
    "together": ("TOGETHER_API_KEY", "TOGETHER_BASE_URL", "/v1", "/v1/chat/completions"),
    "fireworks": ("FIREWORKS_API_KEY", "FIREWORKS_BASE_URL", "", "/inference/v1/chat/completions"),
    "zai": ("ZAI_API_KEY", "ZAI_BASE_URL", "/api/paas/v4", "/api/paas/v4/chat/completions"),
}


@pytest.fixture
def server():
    with MockServer.in_thread({"replies": [{"text": "found"}], "repeat": True}, model="claude-opus-99") as server:
        yield server


def point(name, server, slash=""):
    key, variable, path, _ = BASES[name]
    return {key: "key-1", variable: server.url + path + slash}


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", BASES)
def test_environment_says_where_a_provider_is(place, server, name):
    done = place.run("-p", "look", "--provider", name, env=point(name, server, "/"))
    assert (done.status, done.stdout.strip()) == (0, "found")
    (request,) = server.requests
    assert request.path.startswith(BASES[name][3])
    assert "key-1" in (request.headers.get("x-api-key", "") + request.headers.get("authorization", "")) or (
        request.headers["x-goog-api-key"] == "key-1"
    )


def test_models_file_beats_the_environment(place, server):
    url = {"providers": {"anthropic": {"baseUrl": server.url}}}
    (place.agent_dir / "models.json").write_text(json.dumps(url))
    env = {"ANTHROPIC_API_KEY": "key-1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    done = place.run("-p", "look", "--model", "anthropic/claude-sonnet-5", env=env)
    assert (done.status, len(server.requests)) == (0, 1)
    assert "ANTHROPIC_BASE_URL" not in place.run("models", env=env).stderr


def test_key_stays_here_when_the_address_is_none(place):
    env = {"ANTHROPIC_API_KEY": "key-1", "ANTHROPIC_BASE_URL": "localhost:80"}
    done = place.run("-p", "look", "--model", "anthropic/claude-sonnet-5", env=env)
    text = (
        "provider anthropic is left out: ANTHROPIC_BASE_URL is 'localhost:80'; expected an http:// or https:// address"
    )
    assert (done.status, text in done.stderr) == (2, True)


def test_processes_ask_at_the_same_address(place, server):
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    env = point("anthropic", server)
    done = place.run("run", "Explore", "look", "--model", "anthropic/claude-sonnet-5", env=env)
    assert (done.status, done.stdout.strip(), len(server.requests)) == (0, "found", 1)


def test_address_is_shown_without_its_password(place):
    env = {"OPENAI_API_KEY": "key-1", "OPENAI_BASE_URL": "http://me:secret@127.0.0.1:9/v1"}
    text = "openai requests go to http://127.0.0.1:9/v1 (OPENAI_BASE_URL)"
    listed, checked = place.run("models", env=env), place.run("doctor", env=env)
    assert (text in listed.stderr, text in checked.stdout) == (True, True)
    assert "secret" not in listed.stderr + checked.stdout


NEW = "anthropic/claude-opus-99"
WARNING = f"{NEW} is not in the list of models. It is used as written, with the limits of claude-opus-"


def asked(server):
    return [request.json["model"] for request in server.requests]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("args", "settings"),
    [
        (["--model", NEW], {}),
        (["--model", f"{NEW}:high"], {}),
        (["--provider", "anthropic", "--model", "claude-opus-99"], {}),
        ([], {"defaultModel": NEW}),
        ([], {"defaultProvider": "anthropic", "defaultModel": "claude-opus-99"}),
        ([], {"enabledModels": [NEW]}),
        (["--models", NEW], {}),
    ],
)
def test_new_model_is_used_with_a_warning(place, server, args, settings):
    (place.agent_dir / "settings.json").write_text(json.dumps(settings))
    done = place.run("-p", "look", *args, env=point("anthropic", server))
    assert (done.status, done.stdout.strip(), asked(server)) == (0, "found", ["claude-opus-99"])
    assert WARNING in done.stderr and "did you mean anthropic/claude-opus-" in done.stderr
    assert "`retinue models --refresh`" in done.stderr


def test_strange_model_has_small_limits(place, server):
    done = place.run("-p", "look", "--model", "anthropic/zzz", env=point("anthropic", server))
    assert (done.status, asked(server)) == (0, ["zzz"])
    assert "with cautious limits (context 32768, output 8192 tokens) `retinue" in done.stderr
    assert server.requests[0].json["max_tokens"] == 8192


def test_session_goes_on_with_a_new_model(place, server):
    env = point("anthropic", server)
    place.run("-p", "look", "--model", NEW, env=env)
    done = place.run("-p", "-c", "again", env={**env, "OPENAI_API_KEY": "key-2"})
    assert (done.status, asked(server)) == (0, ["claude-opus-99"] * 2)


def test_new_model_in_an_agent_file(place, server):
    folder = place.agent_dir / "agents"
    folder.mkdir()
    (folder / "scout9.md").write_text(f"---\nname: scout9\ndescription: d\nmodel: {NEW}\n---\n\nLook.\n")
    call = {"subagent_type": "scout9", "prompt": "look", "description": "a look"}
    replies = [{"calls": [{"name": "Agent", "arguments": call}]}, {"text": "begun"}, {"text": "thanks"}]
    done = place.run("-p", "begin", replies=replies, env=point("anthropic", server))
    assert (done.status, asked(server)) == (0, ["claude-opus-99"])
    assert f"agent 'scout9': {WARNING}" in done.stderr


def test_new_model_by_rpc(place, server):
    env = point("anthropic", server)
    with open_cli(["--mode", "rpc"], place.work, env, home=place.home, has_stdin=True) as process:
        caller = Caller(process)
        found = caller.get("set_model", provider="anthropic", modelId="claude-opus-99")
        assert (found["id"], found["contextWindow"]) == ("claude-opus-99", 1_000_000)
        refused = caller.ask("set_model", provider="anthropic", modelId="claude opus")
        assert (refused["success"], "Model not found" in refused["error"]) == (False, True)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("claude-opus-99", "unknown model 'claude-opus-99'; closest: anthropic/claude-opus-"),
        ("house/large", "unknown model 'house/large' of provider house; known: house/small"),
        ("anthropic/claude-sonnet-5:extreme", "unknown thinking level 'extreme'"),
        ("anthropic/zz zz", "unknown model 'anthropic/zz zz' of provider anthropic"),
        ("groq/new", "no key for provider groq"),
    ],
)
def test_other_unknown_names_stay_errors(place, server, name, text):
    house = {"baseUrl": server.url, "api": "openai-completions", "apiKey": "k", "models": [{"id": "small"}]}
    (place.agent_dir / "models.json").write_text(json.dumps({"providers": {"house": house}}))
    done = place.run("-p", "look", "--model", name, env=point("anthropic", server))
    assert (done.status, text in done.stderr, server.requests) == (2, True, [])


def test_own_list_of_a_known_provider_is_whole(place, server):
    own = {"baseUrl": server.url, "models": [{"id": "mine"}]}
    (place.agent_dir / "models.json").write_text(json.dumps({"providers": {"anthropic": own}}))
    done = place.run("-p", "look", "--model", NEW, env={"ANTHROPIC_API_KEY": "key-1"})
    assert (done.status, f"unknown model '{NEW}'" in done.stderr, server.requests) == (2, True, [])


def test_refreshed_list_is_known_from_then_on(place, server):
    env = {**point("anthropic", server), **point("openai", server), **point("google", server)}
    done = place.run("models", "--refresh", env=env)
    assert (done.status, f"{NEW} " in done.stdout, "openai/claude-opus-99 " in done.stdout) == (0, True, True)
    assert "anthropic: 1 models, 1 of them not built in" in done.stderr
    paths = sorted(request.path for request in server.requests)
    assert paths == ["/v1/models", "/v1/models?limit=1000", "/v1beta/models?pageSize=1000"]
    kept = place.agent_dir / "retinue" / "listed-models.json"
    assert (stat.S_IMODE(kept.stat().st_mode), "key-1" in kept.read_text()) == (0o600, False)
    server.requests.clear()
    assert "anthropic/claude-sonnet-5 " in place.run("models", env=env).stdout
    done = place.run("-p", "look", "--model", NEW, env=env)
    assert (done.status, done.stderr, asked(server)) == (0, "", ["claude-opus-99"])
    (google,) = [row for row in rows(place, env) if (row["provider"], row["id"]) == ("google", "claude-opus-99")]
    assert google["contextWindow"] == 128_000


def rows(place, env):
    return json.loads(place.run("models", "--json", env=env).stdout)["models"]


def test_list_of_another_address_does_not_count(place, server):
    env = point("anthropic", server)
    place.run("models", "--refresh", env=env)
    elsewhere = {**env, "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    assert "claude-opus-99" not in [row["id"] for row in rows(place, elsewhere)]


def test_refresh_tells_who_could_not_be_asked(place, server):
    env = {**point("anthropic", server), "OPENAI_API_KEY": "key-2", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = place.run("models", "--refresh", env=env)
    assert (done.status, f"{NEW} " in done.stdout) == (1, True)
    assert "openai: http://127.0.0.1:9/v1/models does not answer (" in done.stderr
    assert "Connection refused); its stored model list is unchanged" in done.stderr


@pytest.mark.parametrize(("name", "hint"), [("opnai", " (did you mean 'openai'?); known: "), ("nope", "; known: ")])
def test_only_near_providers_are_suggested(place, name, hint):
    done = place.run("models", "--provider", name)
    assert (done.status, f"unknown provider '{name}'{hint}anthropic, " in done.stderr) == (2, True)


def test_refresh_asks_one_provider_only(place, server):
    env = {**point("anthropic", server), "OPENAI_API_KEY": "key-2", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    assert place.run("models", "--refresh", "--provider", "Anthropic", env=env).status == 0
    assert [request.path for request in server.requests] == ["/v1/models?limit=1000"]


@pytest.mark.parametrize(
    ("args", "env", "text"),
    [
        (["--offline"], {"OPENAI_API_KEY": "k"}, "--refresh needs the network, which --offline and PI_OFFLINE forbid"),
        ([], {}, "there is no built-in provider with a key"),
        (["--provider", "groq"], {"OPENAI_API_KEY": "k"}, "'groq' is no built-in provider with a key"),
    ],
)
def test_refresh_that_cannot_be(place, args, env, text):
    done = place.run("models", "--refresh", *args, env=env)
    assert (done.status, text in done.stderr) == (2, True)


@pytest.mark.parametrize("text", ["{", '{"providers": {"anthropic": 3}}', '{"providers": {"anthropic": {}}}', "[]"])
def test_damaged_list_is_told(place, text):
    (place.agent_dir / "retinue").mkdir()
    (place.agent_dir / "retinue" / "listed-models.json").write_text(text)
    done = place.run("models", env={"ANTHROPIC_API_KEY": "key-1"})
    assert (done.status, "listed-models.json" in done.stderr) == (0, True)
