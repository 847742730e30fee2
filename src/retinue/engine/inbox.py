"""Queued messages for a run: steering before the next reply, follow-ups when it would stop.

MUST NOT know loops or sessions: the loop empties the queues, anything may fill them.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Literal

from retinue.core.messages import CustomMessage, UserMessage, join_text

Queued = UserMessage | CustomMessage
Delivery = Literal["all", "one-at-a-time"]


class Inbox:
    """The two message queues of one run. A UserMessage is from a person, a CustomMessage is a report."""

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
        """How many queued messages are delivered at once."""
        self.follow_up_mode = follow_up_mode
        self._on_change = on_change

    def steer(self, message: Queued) -> None:
        """Queue a message for the next model reply."""
        self._steering.append(message)
        self._tell(message)

    def follow_up(self, message: Queued) -> None:
        """Queue a message for when the run would otherwise stop."""
        self._follow_up.append(message)
        self._tell(message)

    def take_steering(self) -> list[Queued]:
        return self._take(self._steering, self.steering_mode)

    def take_follow_up(self) -> list[Queued]:
        return self._take(self._follow_up, self.follow_up_mode)

    def clear(self) -> list[Queued]:
        """Empty both queues and return their messages, steering first."""
        left = [*self._steering, *self._follow_up]
        if left:
            self._steering.clear()
            self._follow_up.clear()
            self._tell(*left)
        return left

    def take_back(self) -> tuple[list[str], list[str]]:
        """Remove and return the text of user messages, as steering and follow-ups; reports stay queued."""
        taken = self.words
        said = [message for message in (*self._steering, *self._follow_up) if isinstance(message, UserMessage)]
        for queue in (self._steering, self._follow_up):
            queue[:] = [message for message in queue if not isinstance(message, UserMessage)]
        self._tell(*said)
        return taken

    def revise_reports(self, revise: Callable[[CustomMessage], CustomMessage | None]) -> None:
        """Replace each queued report by the result of `revise`; None removes it."""
        for queue in (self._steering, self._follow_up):
            revised = (revise(item) if isinstance(item, CustomMessage) else item for item in queue)
            queue[:] = [item for item in revised if item is not None]

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """The text of queued user messages, as steering and follow-ups."""
        return _list_words(self._steering), _list_words(self._follow_up)

    @property
    def has_words(self) -> bool:
        """Whether a message of a person is queued for the next reply."""
        return any(isinstance(message, UserMessage) for message in self._steering)

    def has_report(self, custom_type: str) -> bool:
        """Return whether a report of this type is queued."""
        queued = (*self._steering, *self._follow_up)
        return any(isinstance(message, CustomMessage) and message.custom_type == custom_type for message in queued)

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
        # Changes of reports are not announced: with ten thousand reports, each would go through the whole queue.
        if self._on_change is not None and any(isinstance(message, UserMessage) for message in changed):
            self._on_change(*self.words)


def _count_next(queue: list[Queued]) -> int:
    """Return how many messages to deliver: one of the user, or all adjacent reports, to save turns."""
    reports = sum(1 for _ in takewhile(lambda message: isinstance(message, CustomMessage), queue))
    return max(1, reports)


def _list_words(queue: list[Queued]) -> list[str]:
    return [join_text(message.content) for message in queue if isinstance(message, UserMessage)]
