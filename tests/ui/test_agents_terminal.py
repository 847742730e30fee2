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
