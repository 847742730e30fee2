from retinue.core.messages import CustomMessage, UserMessage
from retinue.engine.inbox import Inbox


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
