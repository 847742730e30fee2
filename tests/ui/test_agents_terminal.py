import json
import re

from tests.ui.terminal_world import call

LONG = "\n\n".join(f"paragraph {number}" for number in range(60))


def to(words, **reply):
    return {"match": {"last_user": words}, **reply}


def test_clicks_leave_keys_to_the_editor(mocked):
    listing = {"calls": [call("bash", command="seq 30 40")]}
    with mocked(listing, {"text": "Counted from thirty."}) as world, world.tmux() as tmux:
        tmux.say("count")
        tmux.see("Counted from thirty.")
        tmux.keys("a")
        for number, (words, drag) in enumerate([("Counted", 0), ("Counted", 8), ("bash", 0), ("mock-1", 0)]):
            tmux.click(words, drag=drag)
            tmux.keys(str(number))
        tmux.see("│ a0123 ")
        assert "\n    40\n" in tmux.screen  # the block was unfolded
        tmux.keys("BSpace", "C-a", "Z")
        tmux.see("│ Za012 ")


def test_words_to_a_child_are_seen_until_delivered(mocked):
    spawn = [call("Agent", prompt="look around", description="a long look", subagent_type="Explore")]
    wait = [call("bash", command="while [ ! -e go ]; do sleep 0.05; done")]
    replies = [
        to("^begin$", calls=spawn),
        to("^begin$", text="It is on it."),
        to("look around", calls=wait),
        to("only the tests", text="I look at tests only."),
    ]
    with mocked(*replies) as world, world.tmux() as tmux:
        tmux.say("begin")
        tmux.see("It is on it.")
        tmux.keys("Down", "Down", "Enter")
        tmux.see("x x: stop")
        tmux.keys("Enter")
        tmux.see("message to this agent")
        tmux.click("look around")
        tmux.keys("only the tests")
        tmux.see("│ only the tests")
        tmux.keys("Enter")
        tmux.see("↳ next: only the tests")
        (world.work / "go").touch()
        tmux.see("▌ only the tests")
        tmux.miss("↳ next")
        tmux.see("I look at tests only.")


def test_new_messages_are_counted_below(mocked):
    with mocked({"text": LONG}, {"text": "slow words", "delay_ms": 400}) as world, world.tmux() as tmux:
        tmux.say("first")
        tmux.see("paragraph 59")
        tmux.keys("PPage")
        tmux.miss("paragraph 59")
        tmux.say("second")
        tmux.see("▌ second")
        tmux.keys("PPage", "PPage")
        tmux.see("↓ 1 new message · ctrl+end")
        tmux.keys("C-End")
        tmux.miss("new message")
        tmux.see("slow words")


def test_cost_is_the_same_everywhere(mocked):
    spawn = [call("Agent", prompt="look around", description="a long look", subagent_type="Explore")]
    used = {"input": 1_000, "output": 200, "cacheRead": 5_000}
    replies = [
        to("^begin$", calls=spawn, usage=used),
        to("^begin$", text="It is on it.", usage=used),
        to("look around", text="Seen it all.", usage={"input": 100_000, "output": 2_000, "cacheRead": 7_000}),
        to("", text="I have heard.", usage=used),
    ]
    with mocked(*replies) as world:
        models = json.loads((world.agent_dir / "models.json").read_text())
        price = {"input": 10, "output": 50, "cacheRead": 1, "cacheWrite": 0}
        models["providers"]["mock"]["models"][0]["cost"] = price
        (world.agent_dir / "models.json").write_text(json.dumps(models))
        with world.tmux(columns=110, rows=40) as tmux:
            tmux.say("begin")
            tmux.see("I have heard.")
            tmux.see("↑103.0k ↓2.6k $1.18 ")  # 3 × 0.025 + 1.107
            tmux.say("/session")
            tmux.see("cost      $1.18")
            tmux.keys("Escape")
            tmux.miss("cost      ")
            tmux.say("/cost")
            screen = tmux.see("total  $1.18")
            assert "main · mock/mock-1  $0.075" in screen and "a long look · Explore · mock/mock-1  $1.11" in screen
            assert "102.0k: 100.0k in, 2.0k out; 7.0k read from the cache" in screen
            tmux.keys("Escape")
            tmux.miss("total  ")
            tmux.say("/export page.html")
            tmux.see("exported to page.html")
    assert "1 runs · 105.6k tokens · $1.18" in (world.work / "page.html").read_text()


def test_one_list_shows_every_agent(mocked):
    names = ("alpha", "beta", "gamma")
    spawn = [call("Agent", prompt=f"do {name}", description=f"{name} job", subagent_type="Plan") for name in names]
    replies = [
        to("^begin$", calls=spawn),
        to("^do alpha", calls=[call("bash", command="while [ ! -e go ]; do sleep 0.05; done")]),
        to("^do alpha", text="Alpha is done."),
        to("^do beta", calls=[call("bash", command="while [ ! -e beta ]; do sleep 0.05; done")]),
        to("^do beta", text="Beta is done."),
        to("^do gamma", text="Gamma is done.", delay_ms=60_000),
        to("", text="All right."),
    ]
    with mocked(*replies) as world:
        (world.agent_dir / "subagents.json").write_text('{"maxConcurrent": 2}')
        with world.tmux(columns=120) as tmux:
            tmux.say("begin")
            tmux.see("2 running · 1 queued")
            tmux.see("alpha job  Plan · running while [ ! -e go ]")
            assert find_rows(tmux.screen, names) == ["alpha", "beta", "gamma"]
            (world.work / "beta").touch()
            tmux.see("2 running · 1 finished")
            assert find_rows(tmux.screen, names) == ["alpha", "gamma", "beta"]
            tmux.keys("Down", "Down", "Down")
            assert find_rows(tmux.see("enter: open"), names) == ["alpha", "gamma", "beta"]
            tmux.keys("Down", "Enter")
            tmux.see("Beta is done.")
            tmux.keys("Escape")
            tmux.miss("↳ ")
            tmux.resize(120, 12)
            tmux.miss("job  Plan")
            tmux.see("● Agents 2 running · 1 finished")
            tmux.resize(120, 30)
            tmux.see("gamma job  Plan")
            (world.work / "go").touch()
            tmux.see("1 running · 2 finished")
            assert find_rows(tmux.screen, names) == ["gamma", "alpha", "beta"]
            assert re.search(r"\b[0-9a-f]{12,}\b", tmux.screen) is None


def find_rows(screen, names):
    """The names of agents in the order of their rows."""
    rows = screen.split("● Agents", 1)[-1].splitlines()
    return [name for row in rows for name in names if f"{name} job" in row]
