from retinue.core.events import Event
from retinue.engine.conversation import MOST_LOSSES, StoredConversation
from retinue.engine.journal import Journal
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock


def test_each_loss_is_told_once() -> None:
    told: list[Event] = []
    session = Session.create(cwd="/", directory=None, clock=FakeClock(), new_id=lambda: "s")
    conversation = StoredConversation("r", session, Journal("r", session, lambda text: None), told.append)
    conversation.tell_losses([])
    conversation.tell_losses(["a", "b"])
    conversation.tell_losses(["b"])
    conversation.tell_losses([*"ab", *(str(number) for number in range(MOST_LOSSES + 2))])
    texts = [event.text.partition("shown to the model: ")[2] for event in told]  # type: ignore[union-attr]
    assert texts == ["a; b", "0; 1; 2; 3; 4; and 2 more"]
