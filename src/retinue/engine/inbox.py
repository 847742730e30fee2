"""What waits to be said to a run: steering between turns, follow-ups when it would stop.

Knows nothing of loops or sessions; the loop drains it, anyone may fill it.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Literal

from retinue.core.messages import CustomMessage, TextContent, UserMessage

Queued = UserMessage | CustomMessage
Delivery = Literal["all", "one-at-a-time"]


def to_text(message: Queued) -> str:
    """The words of a queued message, for people."""
    if isinstance(message.content, str):
        return message.content
    return "\n".join(block.text for block in message.content if isinstance(block, TextContent))


class Inbox:
    """Two queues of one run."""

    def __init__(
        self,
        *,
        steering_mode: Delivery = "one-at-a-time",
        follow_up_mode: Delivery = "one-at-a-time",
        on_change: Callable[[list[str], list[str]], None] | None = None,
    ) -> None:
        self._steering: list[Queued] = []
        self._follow_up: list[Queued] = []
        self.steering_mode = steering_mode
        """How much of what waits is said at once."""
        self.follow_up_mode = follow_up_mode
        self._on_change = on_change

    def steer(self, message: Queued) -> None:
        """Say something before the next model reply."""
        self._steering.append(message)
        self._tell(message)

    def follow_up(self, message: Queued) -> None:
        """Say something when the run would otherwise stop."""
        self._follow_up.append(message)
        self._tell(message)

    def take_steering(self) -> list[Queued]:
        """What to say now."""
        return self._take(self._steering, self.steering_mode)

    def take_follow_up(self) -> list[Queued]:
        """What to say now that the run would stop."""
        return self._take(self._follow_up, self.follow_up_mode)

    def clear(self) -> list[Queued]:
        """Empty both queues and return what was in them, oldest first."""
        left = [*self._steering, *self._follow_up]
        if left:
            self._steering.clear()
            self._follow_up.clear()
            self._tell(*left)
        return left

    def take_back(self) -> tuple[list[str], list[str]]:
        """Take out what people have said and return it, steering and follow-ups; reports go on waiting."""
        taken = self.words
        said = [message for message in (*self._steering, *self._follow_up) if isinstance(message, UserMessage)]
        for queue in (self._steering, self._follow_up):
            queue[:] = [message for message in queue if not isinstance(message, UserMessage)]
        self._tell(*said)
        return taken

    def revise_reports(self, revise: Callable[[CustomMessage], CustomMessage | None]) -> None:
        """Let each report that waits be changed; None takes it out."""
        for queue in (self._steering, self._follow_up):
            revised = (revise(item) if isinstance(item, CustomMessage) else item for item in queue)
            queue[:] = [item for item in revised if item is not None]

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """What people have said that waits, steering and follow-ups."""
        return _list_words(self._steering), _list_words(self._follow_up)

    @property
    def has_words(self) -> bool:
        """Whether somebody, not a feature, has said something that waits for the next reply."""
        return any(isinstance(message, UserMessage) for message in self._steering)

    def __bool__(self) -> bool:
        return bool(self._steering or self._follow_up)

    def _take(self, queue: list[Queued], mode: Delivery) -> list[Queued]:
        if not queue:
            return []
        taken = queue[:] if mode == "all" else queue[: _count_next(queue)]
        del queue[: len(taken)]
        self._tell(*taken)
        return taken

    def _tell(self, *changed: Queued) -> None:
        # Reports are no words of people: ten thousand of them must not be gone through with each that comes.
        if self._on_change is not None and any(isinstance(message, UserMessage) for message in changed):
            self._on_change(*self.words)


def _count_next(queue: list[Queued]) -> int:
    """One of the user's; but reports that wait together are read together, or a hundred would take as many turns."""
    reports = sum(1 for _ in takewhile(lambda message: isinstance(message, CustomMessage), queue))
    return max(1, reports)


def _list_words(queue: list[Queued]) -> list[str]:
    """What people have said; a report is nothing they could take back."""
    return [to_text(message) for message in queue if isinstance(message, UserMessage)]
