"""Models with small windows behind a server that refuses, as providers do, what does not fit."""

import json

import pytest
from msgspec import structs

from retinue.models.script import ScriptUsage
from retinue.models.script_file import parse_script
from retinue.testing import MockServer
from retinue.testing.faults import build_error, build_plan, to_spoken
from retinue.testing.plan import ResponsePlan, render_response
from retinue.testing.server import APIS
from retinue.testing.wire.anthropic import AnthropicWire
from retinue.testing.wire.google import GoogleWire

NOTES = "hand-over notes"
TOO_SMALL = "has a context window of 2048 tokens, and this agent needs at least 4096"
SUMMARY = {"text": "## Goal\nTo count."}


class Windowed(MockServer):
    """Counts a request, and answers with what `answer` says to the number and the text of it."""

    window, counts = 8192, True

    def _reply(self, wire, body, model="", *, stream=False):
        asked = wire.parse_request(body, full=True)
        text, tokens = body.decode(), len(body) * 10 // 36
        self.is_notes = NOTES in text
        self.turns = getattr(self, "turns", 0) + (not self.is_notes)
        if tokens > self.window:
            self.turns -= not self.is_notes
            self.refused = getattr(self, "refused", 0) + 1
            return refuse(wire, tokens, self.window)
        reply = self.answer(self.turns, text)
        if isinstance(reply, int):
            kind, words = ("overflow", "prompt is too long") if reply == 400 else ("overloaded", "come back later")
            return build_error(wire, kind, reply, words)
        reply = parse_script([reply]).replies[0]
        usage = ScriptUsage(input=tokens, output=20) if self.counts else ScriptUsage(input=0, output=0)
        spoken = to_spoken(structs.replace(reply, usage=usage), position=asked.position, model=asked.model)
        return build_plan(wire, reply, spoken, None, stream=stream or asked.stream)

    def answer(self, turn, text):
        raise NotImplementedError

    def list_talks(self):
        return [request.json for request in self.requests if NOTES not in json.dumps(request.json)]


def refuse(wire, tokens, window):
    """What Anthropic, Google, and llama.cpp's server say."""
    if isinstance(wire, AnthropicWire):
        return build_error(wire, "overflow", 400, f"prompt is too long: {tokens} tokens > {window} maximum")
    if isinstance(wire, GoogleWire):
        words = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({window})."
        return build_error(wire, "request", 400, words)
    words = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
    error = {"code": 400, "message": words, "type": "exceed_context_size_error", "n_ctx": window}
    return ResponsePlan(render_response(400, json.dumps({"error": error}).encode()))


def serve(window, answer, **options):
    kind = type("Serving", (Windowed,), {"window": window, "answer": lambda self, *asked: answer(*asked), **options})
    return kind.in_thread([{"text": "unused"}])


def run(place, server, *args, api="openai-completions", stdin=None, settings=None, window=None, **fields):
    (place.agent_dir / "models.json").write_text(
        json.dumps(server.models_json(api=api, contextWindow=window or server.window, **fields))
    )
    retry = {"baseDelayMs": 1, "maxAgentDelayMs": 1}
    (place.agent_dir / "settings.json").write_text(json.dumps({"retry": retry, **(settings or {})}))
    return place.run("-p", "--model", "mock/mock-1", *args, stdin=stdin)


def count_to(most, command="seq 1 400"):
    """Calls bash so often, then is done; sums up when asked."""

    def answer(turn, text):
        if NOTES in text:
            return SUMMARY
        return (
            {"calls": [{"name": "bash", "arguments": {"command": command}}]}
            if turn < most
            else {"text": "All counted."}
        )

    return answer


@pytest.mark.sample(4)
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("window", [4096, 8192, 16_384, 32_768])
def test_long_work_comes_to_its_end(place, window, counts):
    with serve(window, count_to(16), counts=counts) as server:
        result = run(place, server, "Count.")
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr
    kinds = [entry["type"] for entry in place.entries()]
    assert window > 8192 or "compaction" in kinds


@pytest.mark.parametrize("api", APIS)
def test_all_formats_make_room(place, api):
    with serve(8192, count_to(12), counts=False) as server:
        result = run(place, server, "Count.", api=api)
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr


@pytest.mark.parametrize("window", [4096, 8192])
def test_huge_result_leaves_room(place, window):
    with serve(window, count_to(4, command="seq 1 9000")) as server:
        result = run(place, server, "Count.")
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr
    assert "cut to" in json.dumps(server.list_talks()[1])


@pytest.mark.parametrize("window", [4096, 8192])
def test_message_beyond_the_window_is_refused(place, window):
    words = "Count this: " + "word " * 12_000 + "THE END"
    with serve(window, count_to(1)) as server:
        first = run(place, server, stdin=words)
        asked = len(server.list_talks())
        second = run(place, server, "-c", "And now?")
    assert (first.status, "the message has 10003 tokens or more" in first.stderr, asked) == (1, True, 0), first.stderr
    assert (second.status, second.stdout) == (0, "All counted.\n"), second.stderr


def test_message_that_is_summarised_is_told(place):
    words = "Count this: " + "word " * 6_500 + "THE END"
    with serve(8192, count_to(1)) as server:
        first = run(place, server, stdin=words)
    assert (first.status, first.stdout) == (0, "All counted.\n"), first.stderr
    assert "your message does not fit into the context window" in first.stderr


@pytest.mark.parametrize(
    "failing", [500, 400, {"text": ""}, {"calls": [{"name": "bash", "arguments": {"command": "ls"}}]}]
)
def test_session_goes_on_without_summary(place, failing):
    count = count_to(14)
    with serve(8192, lambda turn, text: failing if NOTES in text else count(turn, text), counts=False) as server:
        result = run(place, server, "Count to a lot.")
        again = run(place, server, "-c", "And now?")
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr
    assert again.status == 0, again.stderr
    assert "its older part is replaced by a note" in result.stderr
    last = json.dumps(server.list_talks()[-1])
    assert "messages are left out" in last and "Count to a lot." in last


def test_failed_summary_is_tried_again(place):
    asked = []

    def answer(turn, text):
        if NOTES in text:
            asked.append(turn)
            return 503 if len(asked) % 2 else SUMMARY
        return count_to(10)(turn, text)

    with serve(8192, answer) as server:
        result = run(place, server, "--mode", "json", "Count.")
    types = [line["type"] for line in result.lines]
    assert result.status == 0 and len(asked) > 1, result.stderr
    assert "auto_retry_start" in types
    ends = [line for line in result.lines if line["type"] == "compaction_end"]
    assert ends and all("errorMessage" not in line for line in ends)


def test_smaller_model_takes_a_session_over(place):
    with serve(200_000, count_to(14, command="seq 1 2000")) as server:
        assert run(place, server, "Count.").status == 0
    with serve(8192, lambda turn, text: SUMMARY if NOTES in text else {"text": "Going on."}) as server:
        result = run(place, server, "-c", "And now?")
    assert (result.status, result.stdout) == (0, "Going on.\n"), result.stderr
    assert getattr(server, "refused", 0) <= 1


def test_settings_beyond_the_window_are_cut(place):
    settings = {"compaction": {"reserveTokens": 50_000, "keepRecentTokens": 50_000}}
    with serve(8192, count_to(12)) as server:
        result = run(place, server, "Count.", settings=settings)
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr
    assert "compaction.reserveTokens: 50000 does not fit into the context window of mock/mock-1" in result.stderr
    summaries = len(server.requests) - len(server.list_talks())
    assert 0 < summaries < 12


def test_small_window_has_a_short_head(place):
    (place.work / "AGENTS.md").write_text("Be kind.\n" + "More of it. " * 2000)
    with serve(8192, count_to(1)) as server:
        result = run(place, server, "--approve", "Count.")
    (request,) = server.list_talks()
    assert len(json.dumps(request)) // 4 < 8192 // 3
    names = [tool["function"]["name"] for tool in request["tools"]]
    assert {"read", "bash", "edit", "write", "Agent"} <= set(names) and "lsp" not in names
    assert "Be kind." in json.dumps(request) and "project_context" in result.stderr and "lsp" in result.stderr


def test_sixteen_thousand_has_all(place):
    with serve(16_384, count_to(1)) as server:
        result = run(place, server, "Count.")
    names = [tool["function"]["name"] for tool in server.list_talks()[0]["tools"]]
    assert "lsp" in names and result.stderr == ""


def test_tiny_window_is_refused_before_any_request(place):
    with serve(2048, count_to(1)) as server:
        result = run(place, server, "Count.")
    assert (result.status, server.requests) == (1, [])
    assert TOO_SMALL in result.stderr


def test_programs_are_told_of_a_tiny_window(place):
    with serve(2048, count_to(1)) as server:
        result = run(place, server, "--mode", "json", "Count.")
    (failed,) = [line for line in result.lines if line["type"] == "turn_end"]
    assert TOO_SMALL in failed["message"]["errorMessage"] and "agent_end" in [line["type"] for line in result.lines]


def test_children_have_small_windows_too(place):
    agent = {"name": "Agent", "arguments": {"prompt": "TASK: count.", "description": "Count it."}}

    def answer(turn, text):
        if NOTES in text:
            return SUMMARY
        if "Count for me." in text:
            return {"text": "Parent done."} if '"role":"tool"' in text else {"calls": [agent]}
        return count_to(14)(turn, text)

    with serve(8192, answer) as server:
        result = run(place, server, "Count for me.")
    assert result.status == 0, result.stderr
    children = [body for body in server.list_talks() if "Count for me." not in json.dumps(body)]
    assert len(children) > 8 and all(len(json.dumps(body["tools"])) < 8192 for body in children)


@pytest.mark.parametrize("window", [4096, 8192])
def test_window_that_nobody_configured_is_learnt(place, window):
    with serve(window, count_to(12)) as server:
        result = run(place, server, "Count.", window=128_000)
        again = run(place, server, "-c", "And now?", window=128_000)
    assert (result.status, result.stdout) == (0, "All counted.\n"), result.stderr
    assert again.status == 0, again.stderr
    assert f"accepts {window} tokens" in result.stderr
