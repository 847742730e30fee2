import asyncio
import time
from pathlib import Path
from uuid import uuid4

import pytest

from retinue.core.events import (
    Compacted,
    MessageDelta,
    MessageFinished,
    MessageStarted,
    RetryEnded,
    RunFinished,
    ToolFinished,
    TurnFinished,
    TurnStarted,
)
from retinue.core.messages import (
    AssistantMessage,
    CompactionSummaryMessage,
    ImageContent,
    TextContent,
    ToolResultMessage,
    UserMessage,
)
from retinue.core.model import Failure, ModelInfo, Reply, ToolSpec
from retinue.core.run import Reason, Status
from retinue.core.tool import Effect, ToolResult
from retinue.engine.clock import SystemClock
from retinue.engine.limits import WRAP_UP_TEXT, Limits
from retinue.engine.loop import NUDGE_TEXT
from retinue.engine.runner import LiveRun
from retinue.models.retry import RetryPolicy
from retinue.models.scripted import ScriptedModel, parse_script
from retinue.sessions.compaction import CompactionConfig
from retinue.sessions.log import Session
from retinue.testing.clock import EventCollector
from tests.run_setup import build_setup


class Tool:
    """A tool made of a function, for tests of the loop."""

    def __init__(self, name, work):
        self.spec = ToolSpec(name, name, {"type": "object", "properties": {"n": {"type": "number"}}})
        self.effect = Effect.READ
        self.hint = name
        self.guidelines = ()
        self.work = work

    async def call(self, arguments, context):
        return await self.work(arguments)


async def answer(arguments):
    return ToolResult.of(f"answer {arguments.get('n')}")


def start(replies, tools=(), *, pieces=True, **setup):
    model = replies if hasattr(replies, "reply") else ScriptedModel(parse_script(replies))
    made = {tool.spec.name: tool for tool in (Tool("look", answer), *tools)}
    clock = SystemClock()
    session = Session.create(cwd="/", directory=None, clock=clock, new_id=lambda: uuid4().hex)
    setup = {"retry": RetryPolicy(base_delay_ms=1), "sections": {"preamble": "Hi."}, **setup}
    run = LiveRun(build_setup("r1", Path("/"), model, tools=made, **setup), session, clock=clock)
    events = EventCollector()
    run.bus.listen(events, pieces=pieces)
    return run, events


def said(run):
    return [
        (type(m).__name__[:-7], m.content if isinstance(m.content, str) else getattr(m, "text", "") or texts(m))
        for m in run.session.context().messages
        if not isinstance(m, AssistantMessage) or m.content
    ][1:]


def texts(message):
    return "".join(block.text for block in message.content if isinstance(block, TextContent))


def calls(*numbers, name="look"):
    return {"calls": [{"name": name, "arguments": {"n": n}} for n in numbers]}


async def test_answer_without_tools_completes():
    run, _ = start([{"text": "Hello"}])
    outcome = await run.prompt("Hi")
    assert (outcome.status, outcome.reason, outcome.text, outcome.turns) == (Status.COMPLETED, Reason.DONE, "Hello", 1)
    assert said(run) == [("User", "Hi"), ("Assistant", "Hello")]


async def test_parallel_results_keep_source_order():
    async def wait(arguments):
        await asyncio.sleep(0.05 if arguments["n"] == 1 else 0)
        return ToolResult.of(str(arguments["n"]))

    run, events = start([calls(1, 2, 3, name="wait"), {"text": "done"}], [Tool("wait", wait)])
    await run.prompt("go")
    finished = [texts(event.result) for event in events.events if isinstance(event, ToolFinished)]
    results = [texts(m) for m in run.session.context().messages if isinstance(m, ToolResultMessage)]
    assert (finished, results) == (["2", "3", "1"], ["1", "2", "3"])


async def test_steering_is_said_between_turns():
    async def steer(arguments):
        run.steer("only tests")
        return ToolResult.of("ok")

    run, _ = start([calls(1, name="steer"), {"text": "fine"}], [Tool("steer", steer)])
    await run.prompt("go")
    assert said(run)[-2:] == [("User", "only tests"), ("Assistant", "fine")]


async def test_follow_up_is_said_at_the_end():
    run, _ = start([{"text": "one"}, {"text": "two"}])
    run.follow_up("and then?")
    outcome = await run.prompt("go")
    assert outcome.text == "two"
    assert said(run)[1:] == [("Assistant", "one"), ("User", "and then?"), ("Assistant", "two")]


async def test_outcome_counts_turns_and_calls():
    run, _ = start([{"text": "none"}, calls(1), calls(2), {"text": "two"}])
    found = [await run.prompt(text) for text in ("hi", "go")]
    assert [(outcome.turns, outcome.tool_calls) for outcome in found] == [(1, 0), (3, 2)]


async def test_run_that_has_answered_is_not_asked_again():
    run, events = start([{"text": "one"}, {"text": "two", "stop": "length"}])
    await run.prompt("hi")
    before = len(events.of(TurnFinished))
    outcome = await run.go_on()
    assert (outcome.status, outcome.reason, outcome.text) == (Status.COMPLETED, Reason.DONE, "one")
    assert len(events.of(TurnFinished)) == before
    run.steer("and?")
    assert (await run.go_on()).text == "two"
    assert (await run.go_on()).reason is Reason.LENGTH


async def test_turn_limit_asks_to_wrap_up():
    run, _ = start([calls(1), calls(2), {"text": "so far"}], limits=Limits(max_turns=2, grace_turns=3))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.text) == (Status.COMPLETED, Reason.TURN_LIMIT_WRAPPED, "so far")
    assert [text for who, text in said(run) if who == "User"] == ["go", WRAP_UP_TEXT]


async def test_next_prompt_has_all_its_turns():
    replies = [calls(1), calls(2), {"text": "so far"}, {"text": "short"}, calls(3), calls(4), {"text": "again"}]
    run, _ = start(replies, limits=Limits(max_turns=2, grace_turns=3))
    reasons = [(await run.prompt(text)).reason for text in ("go", "on", "more")]
    assert reasons == [Reason.TURN_LIMIT_WRAPPED, Reason.DONE, Reason.TURN_LIMIT_WRAPPED]
    assert [text for who, text in said(run) if who == "User"] == ["go", WRAP_UP_TEXT, "on", "more", WRAP_UP_TEXT]


async def test_grace_turns_end_in_a_stop():
    replies = [{"text": f"step {n}", **calls(n)} for n in range(9)]
    run, _ = start(replies, limits=Limits(max_turns=2, grace_turns=2))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason) == (Status.STOPPED, Reason.TURN_LIMIT)
    assert (outcome.turns, outcome.text) == (4, "step 3")


async def test_empty_reply_is_nudged_once():
    run, _ = start([{"text": ""}, {"text": " "}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.text, outcome.turns) == (Status.COMPLETED, Reason.DONE, "", 2)
    assert [text for who, text in said(run) if who == "User"] == ["go", NUDGE_TEXT]


async def test_unknown_tool_names_the_closest():
    run, _ = start([calls(1, name="Look"), {"text": "ok"}])
    await run.prompt("go")
    assert said(run)[-2] == ("ToolResult", "Tool 'Look' not found. Did you mean 'look'? Available: look")


BAD = {"calls": [{"name": "look", "arguments": {"n": "many"}}]}
WORSE = {"calls": [{"name": "look", "arguments": {"n": []}}]}


async def test_eight_equal_refusals_fail():
    run, _ = start([BAD] * 8 + [{"text": "never"}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.turns) == (Status.FAILED, Reason.ERROR, 8)
    assert outcome.error.startswith("8 replies in a row called only look, each time with the same error: look was not")


@pytest.mark.parametrize(
    "replies",
    [
        [BAD] * 7,
        [BAD, WORSE] * 6,
        [BAD] * 7 + [calls(1)] + [BAD] * 7,
        [{"calls": BAD["calls"] + WORSE["calls"]}] * 12,
        [{"calls": BAD["calls"] + calls(1)["calls"]}] * 12,
    ],
    ids=["seven", "two errors in turns", "one that works between", "two errors at once", "one that works beside"],
)
async def test_other_refusals_do_not_end_it(replies):
    run, _ = start([*replies, {"text": "there it is"}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "there it is")


async def test_refusals_with_a_code_never_count():
    class Strict(Tool):
        def refuse(self, arguments, problem):
            return ToolResult.of(problem, {"error": {"code": "INVALID_INPUT", "message": problem}}, is_error=True)

    bad = {"calls": [{"name": "strict", "arguments": {"n": "many"}}]}
    run, _ = start([bad] * 12 + [{"text": "there it is"}], [Strict("strict", answer)])
    assert (await run.prompt("go")).text == "there it is"


async def test_tool_that_raises_is_contained():
    async def burst(arguments):
        raise ZeroDivisionError("boom")

    run, _ = start([calls(1, name="burst"), {"text": "ok"}], [Tool("burst", burst)])
    outcome = await run.prompt("go")
    text = "burst failed unexpectedly: ZeroDivisionError: 'boom'"
    assert (outcome.status, said(run)[-2][1]) == (Status.COMPLETED, text)


async def test_tool_over_its_limit_is_stopped():
    async def sleep(arguments):
        await asyncio.sleep(60)

    run, _ = start([calls(1, name="sleep"), {"text": "ok"}], [Tool("sleep", sleep)], limits=Limits(tool_s=0.05))
    await run.prompt("go")
    assert said(run)[-2][1] == "sleep was stopped after 0.05 s, the limit for one tool call"


async def test_huge_result_is_cut():
    async def flood(arguments):
        return ToolResult.of("x" * 10_000_000)

    run, _ = start([calls(1, name="flood"), {"text": "ok"}], [Tool("flood", flood)])
    await run.prompt("go")
    assert len(said(run)[-2][1]) < 401_000 and "cut to 400000" in said(run)[-2][1]


async def test_picture_beside_a_huge_text_stays():
    picture = ImageContent("aGk=", "image/png")

    async def flood(arguments):
        return ToolResult([TextContent("x" * 300_000), picture, TextContent("y" * 300_000)])

    run, events = start([calls(1, name="flood"), {"text": "ok"}], [Tool("flood", flood)])
    await run.prompt("go")
    (result,) = [event.result for event in events.of(ToolFinished)]
    assert [type(block) for block in result.content] == [TextContent, ImageContent, TextContent, TextContent]
    assert result.content[1] == picture
    assert sum(len(block.text) for block in result.content if isinstance(block, TextContent)) < 401_000


async def test_transient_failure_is_retried():
    run, events = start([{"error": {"kind": "overloaded", "times": 1}, "text": "fine"}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.text, outcome.turns) == (Status.COMPLETED, "fine", 1)
    assert [kind for kind in events.kinds() if kind.startswith("Ret")] == ["RetryScheduled", "RetryEnded"]
    assert [(event.success, event.attempt) for event in events.of(RetryEnded)] == [(True, 1)]


async def test_retries_come_to_an_end():
    run, events = start([{"error": {"kind": "overloaded"}}], retry=RetryPolicy(max_retries=2, base_delay_ms=1))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason) == (Status.FAILED, Reason.ERROR)
    assert events.kinds().count("AttemptStarted") == 3
    assert [(event.success, event.attempt) for event in events.of(RetryEnded)] == [(False, 2)]


async def test_stop_between_attempts_ends_the_retry():
    run, events = start([{"error": {"kind": "overloaded"}}], retry=RetryPolicy(base_delay_ms=60_000))
    outcome, took_s = await abort_after(run, 0.05)
    assert (outcome.status, took_s < 5) == (Status.STOPPED, True)
    ended = [(event.success, event.attempt, event.error) for event in events.of(RetryEnded)]
    assert (ended, events.kinds()[-1]) == ([(False, 1, "cancelled")], "RunFinished")


async def test_request_error_is_not_retried():
    run, events = start([{"error": {"kind": "request"}}])
    outcome = await run.prompt("go")
    assert (outcome.status, events.kinds().count("AttemptStarted")) == (Status.FAILED, 1)


async def test_length_stop_keeps_the_text():
    run, _ = start([{"text": "half an ans", "stop": "length"}])
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.text) == (Status.COMPLETED, Reason.LENGTH, "half an ans")


async def test_calls_cut_by_length_do_not_run():
    run, _ = start([{**calls(1), "stop": "length"}, {"text": "ok"}])
    await run.prompt("go")
    assert said(run)[-2][1].startswith("look was not run: the reply hit the output limit")


class Stalls:
    """A model whose stream begins and then says nothing more."""

    info = ScriptedModel(parse_script([])).info

    async def reply(self, request, draft):
        draft.add(draft.open_text(), "so far")
        await asyncio.sleep(3600)
        return Reply(draft.finish("stop"))


async def abort_after(run, seconds):
    asyncio.get_running_loop().call_later(seconds, run.abort)
    begun = time.monotonic()
    outcome = await run.prompt("go")
    return outcome, time.monotonic() - begun - seconds


async def test_abort_during_a_stalled_stream():
    run, events = start(Stalls())
    outcome, took_s = await abort_after(run, 0.05)
    assert (outcome.status, outcome.reason, outcome.text) == (Status.STOPPED, Reason.USER, "so far")
    assert took_s < 0.5
    assert events.kinds()[-3:] == ["TurnFinished", "AttemptEnded", "RunFinished"]


async def test_abort_leaves_a_stubborn_tool():
    release = asyncio.Event()

    async def stubborn(arguments):
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ToolResult.of("late")

    run, events = start([calls(1, name="stubborn"), {"text": "ok"}], [Tool("stubborn", stubborn)])
    outcome, took_s = await abort_after(run, 0.05)
    release.set()
    await asyncio.sleep(0.01)
    assert (outcome.status, took_s < 0.5) == (Status.STOPPED, True)
    assert "Warned" in events.kinds()
    assert said(run)[-1] == ("ToolResult", "The call was interrupted before it finished; its effect is unknown.")


async def test_aborted_run_can_be_continued():
    run, _ = start([calls(1, name="slow"), {"text": "again"}], [Tool("slow", lambda arguments: asyncio.sleep(60))])
    await abort_after(run, 0.02)
    outcome = await run.prompt("once more")
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "again")


async def test_wall_limit_ends_the_run():
    run, _ = start(Stalls(), limits=Limits(wall_s=0.05))
    outcome = await run.prompt("go")
    assert (outcome.status, outcome.reason, outcome.text) == (Status.STOPPED, Reason.WALL_TIMEOUT, "so far")


async def test_idle_limit_ends_the_run():
    run, _ = start(Stalls(), limits=Limits(idle_s=0.05))
    assert (await run.prompt("go")).reason is Reason.IDLE_TIMEOUT


@pytest.mark.parametrize("pieces", [True, False], ids=["watched", "unwatched"])
async def test_pieces_are_a_sign_of_life(pieces):
    slow = {"text": "took a while", "chunk_chars": 1, "chunk_ms": 40}
    run, _ = start([slow], pieces=pieces, limits=Limits(idle_s=0.2))
    assert (await run.prompt("go")).text == "took a while"


@pytest.mark.parametrize("pieces", [True, False], ids=["watched", "unwatched"])
async def test_silent_model_is_idle(pieces):
    run, _ = start([{"text": "took a while", "delay_ms": 2000}], pieces=pieces, limits=Limits(idle_s=0.1))
    assert (await run.prompt("go")).reason is Reason.IDLE_TIMEOUT


async def test_cancel_from_outside_is_recorded():
    run, events = start(Stalls())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await run.prompt("go")
    final = [event for event in events.events if isinstance(event, RunFinished)]
    assert [event.outcome.status for event in final] == [Status.INTERRUPTED]


async def test_repeated_call_ids_become_unique():
    twice = {"calls": [{"name": "look", "arguments": {"n": n}, "id": "same"} for n in (1, 2)]}
    run, _ = start([twice, twice, {"text": "ok"}])
    await run.prompt("go")
    messages = run.session.context().messages
    asked = [call.id for m in messages if isinstance(m, AssistantMessage) for call in m.calls]
    answered = [m.tool_call_id for m in messages if isinstance(m, ToolResultMessage)]
    assert asked == answered and len(set(asked)) == 4


async def test_every_message_is_on_record_before_it_is_shown():
    run, _ = start([calls(1, 2), {"text": "ok"}])
    missing = []

    def check(event):
        if isinstance(event, MessageFinished) and event.message not in run.session.context().messages:
            missing.append(event)
        if isinstance(event, TurnFinished):
            missing.extend(r for r in event.tool_results if r not in run.session.context().messages)

    run.bus.listen(check)
    await run.prompt("go")
    assert missing == []


async def test_second_prompt_while_busy_is_refused():
    run, _ = start(Stalls())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(run.prompt("go"))
        await asyncio.sleep(0.01)
        with pytest.raises(Exception, match="is working"):
            await run.prompt("more")
        run.abort()
    assert first.result().reason is Reason.USER


async def test_user_words_come_after_the_prompt():
    run, _ = start([{"text": "Hello"}])
    await run.prompt("Hi")
    roles = [type(m) for m in run.session.context().messages]
    assert roles[1:] == [UserMessage, AssistantMessage]


async def test_streamed_reply_begins_once():
    run, events = start([{"text": "Hello there, you"}])
    await run.prompt("Hi")
    kinds = [type(event) for event in events.events if isinstance(event, MessageStarted | MessageDelta)]
    assert (kinds[0], kinds.count(MessageStarted)) == (MessageStarted, 1)
    assert events.of(MessageStarted)[-1].message.content == []


LONG = "word " * 400


def small_window(replies, window=4800, reserve=1200, keep=100):
    info = ModelInfo(provider="scripted", id="small", api="scripted", context_window=window)
    config = CompactionConfig(reserve_tokens=reserve, keep_recent_tokens=keep)
    return start(ScriptedModel(parse_script(replies), info), compaction=config)


def to(prompt, **reply):
    return {"match": {"last_user": prompt}, **reply}


FULL = {"text": LONG, "usage": {"input": 3300, "output": 500}}
SUMMARY = to("Sum up|first part of the work", text="They talked.")


async def test_full_context_is_summarised():
    run, events = small_window([SUMMARY, to("^one", **FULL), to("^two$", text="short")])
    await run.prompt(f"one {LONG}")
    outcome = await run.prompt("two")
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "short")
    assert [event.reason for event in events.of(Compacted)] == ["threshold"]
    assert any(isinstance(m, CompactionSummaryMessage) for m in run.session.context().messages)


async def test_stored_session_is_summarised_before_its_first_prompt():
    run, events = small_window([SUMMARY])
    for _ in range(3):
        run.session.append_message(UserMessage(LONG, 1))
    assert await run.compact()
    assert [(event.reason, event.error) for event in events.of(Compacted)] == [("manual", "")]


async def test_context_is_summarised_between_turns():
    full = {"usage": {"input": 3600, "output": 500}, **calls(1)}
    run, events = small_window([SUMMARY, to("^one", text=LONG), to("^two$", **full), to("^two$", text="end")])
    await run.prompt(f"one {LONG}")
    await run.prompt("two")
    order = [type(event) for event in events.events if isinstance(event, Compacted | TurnStarted)]
    assert order[:4] == [TurnStarted, TurnStarted, Compacted, TurnStarted]
    assert events.of(Compacted)[0].error == ""


class Overflows:
    """A model that finds more than a few thousand characters too long."""

    info = ModelInfo(provider="scripted", id="short", api="scripted")

    async def reply(self, request, draft):
        if sum(len(str(m.content)) for m in request.messages if hasattr(m, "content")) > 3000 and request.tools:
            failure = Failure("overflow", "too long")
            return Reply(draft.finish("error", error=failure.message), failure)
        index = draft.open_text()
        draft.add(index, "fits now")
        draft.close_text(index)
        return Reply(draft.finish("stop"))


async def test_overflow_is_compacted_and_retried():
    run, events = start(Overflows(), compaction=CompactionConfig(keep_recent_tokens=100))
    await run.prompt(LONG)
    outcome = await run.prompt(LONG)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "fits now")
    assert [event.will_retry for event in events.of(Compacted)] == [True]


async def test_first_overflow_keeps_the_last_message():
    run, _ = start(Overflows(), compaction=CompactionConfig(keep_recent_tokens=100))
    await run.prompt(LONG)
    await run.prompt(f"{LONG}last")
    *_, last, answered = run.session.context().messages
    assert (texts(last), answered.text) == (f"{LONG}last", "fits now")


async def test_message_too_long_for_the_learnt_window_is_told():
    overflow = {"error": {"kind": "overflow", "message": "maximum context length is 9000 tokens"}}
    run, _ = small_window([to("^one$", text="fine"), to("^word", **overflow)], window=100_000)
    assert (await run.prompt("one")).text == "fine"
    outcome = await run.prompt(LONG * 90)
    assert outcome.status is Status.FAILED
    assert outcome.error.startswith("the message has 30000 tokens or more")


async def test_overflow_that_stays_fails_clearly():
    overflow = {"error": {"kind": "overflow"}}
    run, _ = small_window([SUMMARY, to("^one$", text=LONG), to("^two$", **overflow)], window=100_000)
    await run.prompt("one")
    outcome = await run.prompt("two")
    assert (outcome.status, outcome.reason) == (Status.FAILED, Reason.ERROR)


async def test_failed_summary_keeps_the_context():
    failing = to("Sum up|first part of the work", text="")
    run, events = small_window([failing, to("^one$", **FULL), to("^two$", text="short")])
    await run.prompt("one")
    before = run.session.context().messages
    outcome = await run.prompt("two")
    assert outcome.text == "short"
    assert run.session.context().messages[: len(before)] == before
    assert "empty summary" in events.of(Compacted)[0].error


class NarrowSummaries(Overflows):
    """The same for a request for a summary, of which the first two are too long."""

    def __init__(self):
        self.sizes = []

    async def reply(self, request, draft):
        if not request.tools:
            self.sizes.append(len(request.messages[0].content))
            if len(self.sizes) < 3:
                return Reply(draft.finish("error", error="too long"), Failure("overflow", "too long"))
        return await super().reply(request, draft)


class NoSummaries(Overflows):
    """The same, and it cannot sum up."""

    async def reply(self, request, draft):
        if not request.tools:
            return Reply(draft.finish("error", error="broken"), Failure("request", "broken"))
        return await super().reply(request, draft)


async def test_older_part_is_left_out_when_it_cannot_be_summed_up():
    run, events = start(NoSummaries(), compaction=CompactionConfig(keep_recent_tokens=300))
    prompts = [LONG, "x" * 300, "y" * 900]
    outcomes = [await run.prompt(prompt) for prompt in prompts]
    assert [outcome.text for outcome in outcomes] == ["fits now"] * 3
    assert [(event.error, event.will_retry) for event in events.of(Compacted)] == [("", True)]
    kept = [texts(message) for message in run.session.context().messages if isinstance(message, UserMessage)]
    assert kept == prompts[1:]


async def test_summary_that_is_too_long_is_asked_of_less():
    model = NarrowSummaries()
    model.info = ModelInfo(provider="scripted", id="short", api="scripted", context_window=40_000, max_tokens=1000)
    run, events = start(model, compaction=CompactionConfig(keep_recent_tokens=100))
    await run.prompt(LONG * 90)
    await run.prompt("two")
    assert [event.error for event in events.of(Compacted)] == [""]
    whole, half, quarter = model.sizes
    assert (1.8 < whole / half < 2.1, 1.8 < half / quarter < 2.1) == (True, True)
