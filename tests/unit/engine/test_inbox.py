from retinue.core.messages import CustomMessage, ImageContent, TextContent, UserMessage
from retinue.engine.inbox import Inbox


def say(text):
    return UserMessage(text, 0)


def test_one_at_a_time_keeps_the_rest():
    inbox = Inbox()
    inbox.steer(say("a"))
    inbox.steer(say("b"))
    assert [inbox.take_steering(), inbox.take_steering(), inbox.take_steering()] == [[say("a")], [say("b")], []]


def test_all_delivers_everything():
    inbox = Inbox(steering_mode="all")
    inbox.steer(say("a"))
    inbox.steer(say("b"))
    assert inbox.take_steering() == [say("a"), say("b")]


def test_each_change_is_told():
    told = []
    inbox = Inbox(on_change=lambda steering, follow_up: told.append((steering, follow_up)))
    inbox.steer(say("a"))
    inbox.follow_up(say("b"))
    inbox.take_steering()
    assert told == [(["a"], []), (["a"], ["b"]), ([], ["b"])]


def test_clear_gives_back_everything():
    inbox = Inbox()
    inbox.steer(say("a"))
    inbox.follow_up(say("b"))
    assert (inbox.clear(), bool(inbox)) == ([say("a"), say("b")], False)


def test_follow_ups_are_said_as_their_mode_says():
    for mode, expected in (("all", [["a", "b"], []]), ("one-at-a-time", [["a"], ["b"]])):
        inbox = Inbox(follow_up_mode=mode)
        inbox.follow_up(say("a"))
        inbox.follow_up(say("b"))
        assert bool(inbox)
        assert [[each.content for each in inbox.take_follow_up()] for _ in range(2)] == expected


def test_words_can_be_taken_back_and_reports_stay():
    told = []
    inbox = Inbox(on_change=lambda *words: told.append(words))
    report = CustomMessage("t", "r", True, 0)
    inbox.steer(say([TextContent("a"), ImageContent("x", "image/png"), TextContent("b")]))
    inbox.follow_up(report)
    inbox.follow_up(say("c"))
    assert (inbox.take_back(), told[-1]) == ((["a\nb"], ["c"]), ([], []))
    assert (inbox.take_steering(), inbox.take_follow_up(), bool(inbox)) == ([], [report], False)


def test_emptied_inbox_is_told():
    told = []
    inbox = Inbox(on_change=lambda *words: told.append(words))
    inbox.clear()
    assert told == []
    inbox.steer(say("a"))
    inbox.clear()
    assert told == [(["a"], []), ([], [])]


def test_waiting_reports_are_changed_or_taken_out():
    inbox = Inbox(steering_mode="all")
    for text in ("old", "gone"):
        inbox.steer(CustomMessage("t", text, True, 0))
    inbox.steer(say("a"))
    new = CustomMessage("t", "new", True, 0)
    inbox.revise_reports(lambda report: new if report.content == "old" else None)
    assert inbox.take_steering() == [new, say("a")]


def report(text):
    return CustomMessage("subagent-notification", text, True, 0)


def test_waiting_reports_are_read_together():
    inbox = Inbox()
    words = UserMessage("u", 0)
    for message in (report("a"), report("b"), words, report("c")):
        inbox.steer(message)
    taken = [inbox.take_steering() for _ in range(4)]
    assert taken == [[report("a"), report("b")], [words], [report("c")], []]


def test_only_people_have_words():
    told = []
    inbox = Inbox(on_change=lambda steering, follow_up: told.append(steering))
    inbox.steer(report("a"))
    assert inbox.has_words is False
    inbox.follow_up(UserMessage("later", 0))
    assert inbox.has_words is False
    inbox.steer(UserMessage("now", 0))
    assert (inbox.has_words, told[-1]) == (True, ["now"])


def test_only_words_of_people_are_told():
    told = []
    inbox = Inbox(on_change=lambda steering, follow_up: told.append(steering))
    for message in (report("a"), UserMessage("left", 0), report("b")):
        inbox.steer(message)
    inbox.take_back()
    inbox.take_steering()
    assert told == [["left"], []]
