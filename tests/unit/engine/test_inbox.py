from retinue.core.messages import UserMessage
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
