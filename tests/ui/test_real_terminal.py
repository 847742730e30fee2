import json
import os
import signal
import time

import pytest

from retinue.testing import run_cli
from tests.ui.terminal_world import PROMPT, call, read

# Programs in tmux are always started as a user does; of those in a pty, the ones that are looked at while they start.
fresh = pytest.mark.fresh

SLOW = {"text": "slow words " * 400, "chunk_ms": 30, "chunk_chars": 12}
SLEEPS = [{"calls": [call("bash", command="trap '' TERM INT HUP; sleep 61")]}, {"text": "never said"}]
RESTORED = {1049: False, 25: True, 1000: False, 1003: False, 1006: False, 2004: False, 1004: False, 7: True}


@pytest.fixture
def place_run(world):
    return lambda stdin: run_cli([], world.work, stdin=stdin, home=world.home)


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def test_prompt_streams_an_answer(mocked):
    with mocked({"text": "one two three four FIVE", "chunk_chars": 4, "chunk_ms": 20}) as world, world.tmux() as tmux:
        tmux.say("count for me")
        tmux.see("one two")
        screen = tmux.see("FIVE")
        tmux.say("/quit")
        assert tmux.end() == (0, True, "0 1 0")
    assert "count for me" in screen and world.wait_until_alone() == []


def test_keys_before_the_screen_are_kept(mocked):
    with mocked({"text": "never asked"}) as world:
        early = world.tmux()
        for word in ("typed ", "before ", "the ", "screen"):
            early.keys(word)
        with early as tmux:
            tmux.keys(" and after")
            tmux.see("│ typed before the screen and after ")


def test_enter_before_the_screen_sends(mocked):
    with mocked({"text": "heard you"}) as world:
        early = world.tmux()
        early.keys("hello", "Enter")
        with early as tmux:
            assert "hello" in tmux.see("heard you")


def test_keys_before_the_screen_answer_no_question(mocked):
    with mocked(to("^y$", text="heard y"), to("^1$", text="heard one")) as world:
        bring_agent(world)
        early = world.tmux()
        early.keys("y", "Enter", "1", "Enter")
        with early as tmux:
            tmux.see("Use it only if you trust")
            tmux.keys("Escape")
            assert "heard y" in tmux.see("heard one")
    assert not (world.agent_dir / "trust.json").exists()


def test_words_on_the_command_line_follow_each_other(mocked):
    replies = [to("^first$", text="heard first"), to("^second$", text="heard second")]
    with mocked(*replies) as world, world.tmux("first", "second") as tmux:
        assert "heard first" in tmux.see("heard second")


def test_tool_call_is_shown(mocked):
    replies = [{"calls": [call("bash", command="echo $((40 + 2)) files")]}, {"text": "There are some."}]
    with mocked(*replies) as world, world.tmux() as tmux:
        tmux.say("how many")
        screen = tmux.see("There are some.")
    assert "✓ bash" in screen and "42 files" in screen


def test_background_agents_are_seen_and_viewed(mocked):
    spawn = [call("Agent", prompt=f"look {n}", description=f"job {n}", subagent_type="Explore") for n in range(2)]
    replies = [
        to("^begin$", calls=spawn),
        to("^begin$", text="They are on it."),
        to("look", text="I look around. " * 400, chunk_ms=40, chunk_chars=10),
    ]
    with mocked(*replies) as world, world.tmux() as tmux:
        tmux.say("begin")
        assert "job 1" in tmux.see("2 running")
        tmux.see("· I look around. I look around.")
        tmux.keys("Down", "Down", "Enter")
        tmux.see("x x: stop")
        tmux.see("I look around.")
        tmux.keys("x", "x")
        tmux.see("stopped")
        tmux.keys("Escape")
        tmux.miss("↳ ")
        tmux.keys("C-d")
        tmux.see("1 agent is working")
        tmux.keys("Enter")
        assert tmux.end() == (0, True, "0 1 0")
    assert world.wait_until_alone() == []


def test_alt_enter_waits_for_the_end(mocked):
    with mocked(SLOW, {"text": "said at last"}) as world, world.tmux() as tmux:
        tmux.say("go")
        tmux.see("slow words")
        tmux.keys("a", "b", "C-a")
        tmux.keys("l", "a", "t", "e", "r", "Space")
        tmux.see("later ab")
        tmux.keys("M-Enter")
        tmux.see("then: later ab")
        tmux.keys("M-Up")
        tmux.miss("then: later ab")
        tmux.keys("M-C-]", "t", "X")
        tmux.see("laXter ab")
        tmux.keys("C-c", "C-c")
        tmux.see("stopped")
        tmux.keys("C-d")
        assert tmux.end() == (0, True, "0 1 0")


@pytest.mark.parametrize("is_wished", [False, True])
def test_words_are_edited_with_alt(mocked, is_wished):
    names = {"cursorWordLeft": "alt+b", "cursorWordRight": "alt+f", "deleteWordBackward": "alt+backspace"}
    wished = {f"tui.editor.{name}": key for name, key in names.items()}
    with mocked({"text": "never asked"}) as world:
        (world.agent_dir / "keybindings.json").write_text(json.dumps(wished if is_wished else {}))
        with world.tmux() as tmux:
            tmux.see("mock-1")
            for keys, text in [
                (("o", "n", "e", "Space", "t", "w", "o", "Space", "x", "y", "z"), "one two xyz"),
                (("M-b", "M-b", "A"), "one Atwo xyz"),
                (("M-f", "B"), "one AtwoB xyz"),
                (("M-BSpace",), "one  xyz"),
                (("C-a", "M-d"), "  xyz"),
                (("C-y", "M-y"), "AtwoB  xyz"),
            ]:
                tmux.keys(*keys)
                tmux.see(f"│ {text} ")


def test_suspended_program_comes_back(mocked):
    with mocked({"text": "heard you"}) as world, world.tmux() as tmux:
        tmux.see("mock-1")
        tmux.keys("C-z")
        deadline = time.monotonic() + 8
        while tmux.state != "0 1 0" and time.monotonic() < deadline:
            time.sleep(0.03)
        stopped = [pid for pid in world.find_left_behind() if b"State:\tT" in read(f"/proc/{pid}/status")]
        assert (tmux.state, len(stopped) >= 1) == ("0 1 0", True)
        for pid in stopped:
            os.kill(int(pid), signal.SIGCONT)
        tmux.see("mock-1")
        tmux.say("go")
        tmux.see("heard you")
        tmux.keys("C-d")
        assert tmux.end() == (0, True, "0 1 0")


def test_own_editor_writes_the_prompt(mocked):
    with mocked({"text": "heard you"}) as world:
        script = world.home / "editor.sh"
        script.write_text('printf "EDITOR HAS IT"; read answer; printf "%s by hand" "$answer" > "$1"\n')
        world.environment["EDITOR"] = "no-such-editor"
        (world.agent_dir / "settings.json").write_text(json.dumps({"externalEditor": f"sh {script}"}))
        with world.tmux() as tmux:
            tmux.see("mock-1")
            tmux.keys("C-g")
            tmux.see("EDITOR HAS IT")
            assert tmux.state.startswith("0 1")
            tmux.say("written")
            tmux.see("written by hand")
            tmux.see("mock-1")
            tmux.keys("Enter")
            tmux.see("heard you")
            tmux.keys("C-d")
            assert tmux.end() == (0, True, "0 1 0")


def test_storm_of_sizes_while_streaming(mocked):
    with mocked(SLOW) as world, world.tmux() as tmux:
        tmux.say("go")
        tmux.see("slow words")
        for columns, rows in [(20, 5), (300, 80), (21, 80), (300, 5), (40, 12), (22, 6), (120, 40)] * 3:
            tmux.resize(columns, rows)
            time.sleep(0.04)
        tmux.see("esc: stop the agent")
        tmux.see("slow words")
        tmux.keys("Escape")
        tmux.see("stopped")
        tmux.keys("C-d")
        assert tmux.end() == (0, True, "0 1 0")


MOMENTS = [0.05, 0.15, 0.2, 0.3, 0.6, 0.9]


@fresh
@pytest.mark.parametrize("moment_s", [0.1, 0.4, *(pytest.param(each, marks=pytest.mark.slow) for each in MOMENTS)])
def test_one_interrupt_while_starting_is_enough(world, moment_s):
    with world.open() as terminal:
        before = terminal.first_attributes
        terminal.read(moment_s)
        terminal.signal(signal.SIGINT)
        assert terminal.wait() in (130, -signal.SIGINT, 1)  # 1: the interpreter has not come to us yet
        assert terminal.attributes == before
        assert {mode: terminal.modes.get(mode, is_on) for mode, is_on in RESTORED.items()} == RESTORED
    assert world.wait_until_alone() == []


@fresh
def test_key_while_starting_ends_it(world):
    with world.open() as terminal:
        before = terminal.first_attributes
        while terminal.process.poll() is None:
            terminal.type("\x03")  # a signal while the terminal is as it was, then a key
            terminal.read(0.3)
        assert terminal.wait() in (0, 130, -signal.SIGINT, 1)
        assert terminal.attributes == before
    assert world.wait_until_alone() == []


def bring_agent(world):
    (world.work / ".pi" / "agents").mkdir(parents=True)
    (world.work / ".pi" / "agents" / "spy.md").write_text("---\ndescription: looks\n---\nLook.")


@pytest.mark.parametrize(("key", "status"), [("C-c", 130), ("C-d", 0)])
def test_trust_question_can_be_left(world, key, status):
    bring_agent(world)
    before = sorted(path for path in world.home.rglob("*") if path.is_file())
    with world.tmux() as tmux:
        tmux.see("Use it only if you trust")
        tmux.keys(key)
        assert tmux.end() == (status, True, "0 1 0")
    assert sorted(path for path in world.home.rglob("*") if path.is_file()) == before
    assert world.wait_until_alone() == []


def test_escape_at_the_trust_question_is_a_no(world):
    bring_agent(world)
    with world.tmux() as tmux:
        tmux.see("Use it only if you trust")
        tmux.keys("Escape")
        tmux.miss("Use it only if you trust")
        tmux.see("offline/rules")
        tmux.keys("C-d")
        assert tmux.end() == (0, True, "0 1 0")
    assert not (world.agent_dir / "trust.json").exists() and world.wait_until_alone() == []


@fresh
def test_signal_at_the_trust_question_ends_it(world):
    bring_agent(world)
    with world.open() as terminal:
        before = terminal.first_attributes
        terminal.wait_for("yes, this time")
        terminal.signal(signal.SIGINT)
        assert terminal.wait() == 130
        assert terminal.attributes == before and {mode: terminal.modes[mode] for mode in RESTORED} == RESTORED


def test_ctrl_c_while_leaving_is_quiet(mocked):
    with mocked(*SLEEPS) as world, world.open() as terminal:
        before = terminal.first_attributes
        terminal.wait_for("mock-1")
        terminal.type("go\r")
        terminal.wait_for("running bash")
        terminal.type("/quit\r")
        terminal.type("\x03\x03\x03")
        assert terminal.wait() in (0, 130)
        assert terminal.attributes == before and b"Traceback" not in terminal.output
    assert world.wait_until_alone() == []


@pytest.mark.parametrize(("replies", "sign"), [([SLOW], "slow words"), (SLEEPS, "running bash")])
def test_ctrl_c_stops_what_works(mocked, replies, sign):
    with mocked(*replies) as world, world.tmux() as tmux:
        tmux.say("go")
        tmux.see(sign)
        tmux.keys("C-c")
        tmux.miss("esc: stop")
        tmux.keys("C-c", "C-c")
        assert tmux.end() == (0, True, "0 1 0")
    assert world.wait_until_alone() == []


def test_ctrl_c_in_a_menu_leads_out(mocked):
    with mocked({"text": "never asked"}) as world, world.tmux() as tmux:
        tmux.say("/model")
        tmux.see("type to search")
        tmux.keys("C-c")
        tmux.miss("type to search")
        tmux.keys("C-c", "C-c")
        assert tmux.end() == (0, True, "0 1 0")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_signal_ends_it_and_its_commands(mocked, number, status):
    with mocked(*SLEEPS) as world, world.open() as terminal:
        before = terminal.first_attributes
        terminal.wait_for("mock-1")
        terminal.type("go\r")
        terminal.wait_for("running bash")
        terminal.signal(number)
        assert terminal.wait() == status
        if number != signal.SIGKILL:
            assert {mode: terminal.modes[mode] for mode in RESTORED} == RESTORED
            assert terminal.attributes == before
    assert world.wait_until_alone() == []


def test_closed_window_ends_it_and_its_commands(mocked):
    with mocked(*SLEEPS) as world, world.open() as terminal:
        terminal.wait_for("mock-1")
        terminal.type("go\r")
        terminal.wait_for("running bash")
        terminal.hang_up()
        assert terminal.wait() == 129
    assert world.wait_until_alone() == []


def test_closed_window_is_noticed_without_a_signal(world):
    # In a session of its own the terminal is not its controlling one, so no hang-up is told.
    with world.open(before=["setsid", "--wait"]) as terminal:
        terminal.wait_for("offline/rules")
        assert len(world.find_left_behind()) == 2
        terminal.hang_up()
        assert world.wait_until_alone() == []


def test_ctrl_c_at_a_question_stops_the_run(mocked):
    with mocked({"calls": [call("bash", command="echo done > made.txt")]}, {"text": "after"}) as world:
        (world.agent_dir / "subagents.json").write_text('{"approvals": "ask"}')
        with world.tmux() as tmux:
            tmux.say("go")
            tmux.see("echo done")
            tmux.see("allow")
            tmux.keys("C-c")
            tmux.miss("allow")
            tmux.miss("esc: stop")
            tmux.keys("C-d")
            assert tmux.end() == (0, True, "0 1 0")
    assert not (world.work / "made.txt").exists() and world.wait_until_alone() == []


@fresh
@pytest.mark.parametrize("stdin", [None, ""])
def test_without_a_terminal_says_how(place_run, stdin):
    done = place_run(stdin)
    assert (done.status, done.stdout) == (2, "")
    assert 'retinue -p "' in done.stderr and "Traceback" not in done.stderr


def test_second_signal_ends_it_at_once(mocked):
    with mocked(*SLEEPS) as world, world.open() as terminal:
        before = terminal.first_attributes
        terminal.wait_for("mock-1")
        terminal.signal(signal.SIGTERM)
        terminal.signal(signal.SIGTERM)
        assert terminal.wait() == 143
        assert terminal.attributes == before


@fresh
def test_bad_model_leaves_the_terminal_alone(world):
    with world.open("--provider", "nobody") as terminal:
        before = terminal.first_attributes
        assert terminal.wait() == 2
        assert terminal.attributes == before and terminal.modes.get(1049) is not True
        assert b"Traceback" not in terminal.output and b"nobody" in terminal.output


@fresh
def test_words_typed_while_starting_are_said(mocked):
    with mocked({"text": "heard you"}) as world, world.open() as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("early\r")
        terminal.wait_for("heard you")


def test_prompt_of_the_command_line_is_said(mocked):
    with mocked({"text": "heard you"}) as world, world.open("say it") as terminal:
        terminal.wait_for("heard you")


POOR = [{"TERM": "linux"}, {"TERM": "vt100"}]


@fresh
@pytest.mark.parametrize(
    "env", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, *(pytest.param(each, marks=pytest.mark.slow) for each in POOR)]
)
def test_poor_terminals_work(mocked, env):
    with mocked({"text": "plain answer"}) as world, world.open(env={**env, "LANG": "C"}) as terminal:
        terminal.wait_for("mock-1")
        terminal.type("go\r")
        terminal.wait_for("plain answer")
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert ("NO_COLOR" in env) <= (b"38;2;122;162;247" not in terminal.output)
