import random
import re
import time

import pytest

from retinue.surfaces.base import cut_text
from retinue.surfaces.subagent.sanitise import sanitise, sanitise_all
from tests.surfaces.subagent_world import World, to

KEY = "sk" + "-" + "a1B2c3D4" * 4
GITHUB = "gh" + "p_" + "a1B2" * 9


@pytest.fixture
def world(tmp_path, home):
    return World(tmp_path, home)


@pytest.mark.spec("devkit:50")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"api_key={KEY}", "api_key=[REDACTED]"),
        (f"apiKey: '{KEY}'", "apiKey=[REDACTED]"),
        (f"MY_ACCESS-TOKEN = {KEY} and more", "MY_ACCESS-TOKEN=[REDACTED] and more"),
        (f"secretKey:{KEY}", "secretKey=[REDACTED]"),
        (f"curl -H 'Authorization: Bearer {KEY}'", "curl -H 'Authorization: [REDACTED]'"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: [REDACTED]"),
        (f"a Bearer {KEY}.", "a Bearer [REDACTED]"),
        (f"a bearer {KEY} too", "a bearer [REDACTED] too"),
        ("AWS_SECRET_ACCESS_KEY=" + "a1/B" * 10, "AWS_SECRET_ACCESS_KEY=[REDACTED]"),
        (f"clone https://{GITHUB}@host", "clone https://[GITHUB_TOKEN_REDACTED]@host"),
        (f"OPENAI_API_KEY={KEY}", "OPENAI_API_KEY=[REDACTED]"),
        (f"STRIPE_KEY={KEY}", "STRIPE_KEY=[REDACTED]"),
        (f"one\n  export SOME={KEY} # mine\ntwo", "one\n[ENV_VAR_REDACTED]\ntwo"),
        ("GET /x?token=abcdef1234&y=1", "GET /x?token=[REDACTED]&y=1"),
        ("Error: x\n    at run (/srv/app/a.js:1:2)", "Error: x\n    at [REDACTED_PATH]"),
        ("see /root/me/a.py, /root/me: and /root/me/b", "see ~/a.py, ~: and ~/b"),
        (r"in G:\work\y", r"in ~\y"),
    ],
)
def test_secrets_are_masked(text, shown):
    assert sanitise(text, "/root/me") == shown


@pytest.mark.parametrize(
    "text",
    [
        "The api_key is read from settings; token: short",
        "Bearer tokens are checked in auth.py",
        "He was looking at (the) thing\nError: one line",
        "src/home/view.py and /srv/home/page, /roots/me, x/root/me",
        "export SHORT=1",
        "const apiKey = process.env.MY_API_KEY",
        "secret_key = config.secret_key_from_vault()",
        "accessToken: refreshAccessTokenForUser(user)",
        "api_key = settings_of_the_provider.api_key",
        "auth_token=request.headers['X-Auth-Token-Of-The-User']",
        "authorization = build_authorization_header(token)",
        "see /home/other/project/a.py, /Users/ann/b and C:\\Users\\ann\\x",
        "GET /x?apikey_version=1234567890&author=somebody-else",
        "GET /x?token=short&y=1",
    ],
)
def test_plain_words_stay(text):
    assert sanitise(text, "/root/me") == text


@pytest.mark.spec("devkit:51")
def test_long_traces_are_folded():
    frames = "\n".join(f"    at step{number} (/app/a.js:{number})" for number in range(9))
    kept = "\n".join(["    at [REDACTED_PATH]"] * 4)
    folded = f"Error: x\n{kept}\n    ...\n    [Additional stack frames truncated]\nafter"
    assert sanitise(f"Error: x\n{frames}\nafter") == folded


def test_some_fields_are_spared():
    value = {"task": KEY, "list": [f"api_key={KEY}", 1, None], "deep": {"task": "x", "text": "/home/ann/x"}}
    shown = {"task": KEY, "list": ["api_key=[REDACTED]", 1, None], "deep": {"task": "x", "text": "~/x"}}
    assert sanitise_all(value, "/home/ann", spare=("task",)) == shown


def test_masking_is_quick():
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    pick = random.Random(seed)
    words = ["a_b-", "api", "key", "=", "Bearer ", " at ", "(", ":1)", "\n", "/home/", "export ", "?token=", "x" * 50]
    text = "".join(pick.choice(words) for _ in range(60_000))
    started = time.process_time()
    sanitise(text, "/root/me")
    sanitise("a_" * 100_000, "/root/me")
    sanitise(" at " + "(" * 20_000, "/root/me")
    assert time.process_time() - started < 3


@pytest.mark.spec("devkit:49")
@pytest.mark.parametrize(
    ("text", "head", "notice"),
    [
        ("x\n" * 6000, "[TRUNCATED: showing first 5000 of 6001 lines, 9.8KB of 11.7KB]", "5000 of 6001"),
        ("é" * 200_000, "[TRUNCATED: showing first 1 of 1 lines, 200.0KB of 390.6KB]", "1 of 1"),
        ("a" * 3_000_000, "[TRUNCATED: showing first 1 of 1 lines, 200.0KB of 2.9MB]", "1 of 1"),
        ("x" * 204_801, "[TRUNCATED: showing first 1 of 1 lines, 200.0KB of 200.0KB]", "1 of 1"),
    ],
)
def test_long_text_is_cut(text, head, notice):
    cut = cut_text(text)
    first, _, rest = cut.text.partition("\n")
    assert (first, cut.notice) == (head, f"Output truncated: showing {notice} lines")
    assert text.startswith(rest)
    assert len(rest.encode()) <= 204_800


@pytest.mark.parametrize("text", ["", "x", "x\n" * 4999, "x" * 204_800])
def test_short_text_is_whole(text):
    assert (cut_text(text).text, cut_text(text).notice) == (text, "")


@pytest.mark.spec("devkit:49", "devkit:50")
async def test_long_answer_is_kept_whole(world):
    answer = "\n".join([f"api_key={KEY}", *map(str, range(6000))])
    result = await world.ask("explorer", "look", to("^look", text=answer))
    one, masked = result.details["results"][0], answer.replace(KEY, "[REDACTED]")
    assert (one["exitCode"], one["output"], result.is_error) == (0, masked, False)
    assert result.details["error"] == {
        "code": "SUBAGENT_OUTPUT_TRUNCATED",
        "message": "Output truncated: showing 5000 of 6001 lines",
    }
    text = result.content[0].text
    assert text.startswith("[TRUNCATED: showing first 5000 of 6001 lines, ")
    path = one["sessionFile"].replace(str(world.home), "~")
    assert text.endswith(f"\n4998\n\n[The rest is in the agent's session, {path}.]")


@pytest.mark.spec("devkit:50")
async def test_everything_shown_is_masked(world):
    secret = f"api_key={KEY}"
    calls = [{"name": "grep", "arguments": {"pattern": secret, "path": str(world.home / "x")}}]
    replies = [to("look", text=secret, calls=calls), to("look", error={"kind": "auth", "message": secret})]
    result = await world.ask("explorer", f"look {secret}", *replies)
    details = result.details
    assert details["results"][0].pop("task") == f"look {secret}"
    path = details["results"][0].pop("sessionFile")
    assert path.startswith(str(world.home))
    shown = f"{result.content[0].text}{details}"
    assert (KEY in shown, str(world.home) in shown, "api_key=[REDACTED]" in shown) == (False, False, True)
    assert re.search(r"\n\nSession file:\n~/\.pi/agent/sessions/", result.content[0].text)


@pytest.mark.spec("devkit:35")
async def test_failure_is_not_cut(world):
    answer = "\n".join(map(str, range(6000)))
    replies = [
        to("look", text=answer, calls=[{"name": "ls", "arguments": {}}]),
        to("look", error={"kind": "auth", "message": "bad"}),
    ]
    result = await world.ask("explorer", "look", *replies)
    one = result.details["results"][0]
    assert one["error"] == one["output"] == result.details["error"]["message"] == result.content[0].text
    assert (one["exitCode"], result.is_error, f"Partial output:\n{answer}" in one["error"]) == (1, True, True)
