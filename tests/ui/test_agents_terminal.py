import json

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
