"""Leaves a session: asks first while agents are working, waits for them if wanted, and says how to resume."""

import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from retinue.core.figures import count_noun
from retinue.ui.blocks import UserBlock
from retinue.ui.formats import clean, fold_middle

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.ui.screens.picker import PickerRow

MOST_LINES, MOST_COLUMNS = 20, 300
"""Size of the answer that is shown after the program has ended."""


class Departure:
    """Leaves the session in one of several ways."""

    def __init__(self, app: "RetinueApp") -> None:
        self._app = app
        self._go: Callable[[], Awaitable[None]] | None = None
        self._aim = ""

    def describe(self) -> str:
        """What happens when the agents are done; empty if nothing was planned."""
        if self._go is None:
            return ""
        waits = count_noun(self._app.link.working, "agent") if self._app.link.working else "the agent"
        return f"waiting for {waits} to {self._aim} · {self._app.keys.show('app.interrupt')}: stay"

    async def request(self, aim: str, go: Callable[[], Awaitable[None]]) -> None:
        """Go at once if no agent is working, else as the user decides. `aim` completes `Before you …`."""
        agents, app = self._app.link.working, self._app
        self._go = None
        if agents:
            from retinue.ui.screens.picker import Picker

            title = f"{count_noun(agents, 'agent')} {'is' if agents == 1 else 'are'} working"
            chosen = await app.ask(Picker(title, self._list_ways(aim)))
            if chosen == "wait" and self._app.link.working:
                self._go, self._aim = go, aim
                app.link.touch()
                return
            if chosen is None or chosen == "cancel":
                return
            if chosen == "leave":
                app.link.crew.session_runs.leave()
        await go()

    def _list_ways(self, aim: str) -> "list[PickerRow]":
        from retinue.ui.screens.picker import PickerRow

        lasting = PickerRow("leave", "Let them continue", "they continue when you open this session again")
        return [
            PickerRow("stop", f"Stop them and {aim}", "they can be resumed"),
            PickerRow("wait", "Wait for them", f"{aim} when they are done; keep working until then"),
            *([lasting] if self._app.link.crew.session_runs.can_leave else []),
            PickerRow("cancel", "Cancel", "stay in this session"),
        ]

    def cancel(self) -> bool:
        """Stay in the session after all; False if nothing was planned."""
        was_planned, self._go = self._go is not None, None
        return was_planned

    def complete(self) -> bool:
        """Go now, because the last agent has ended; False if nothing was planned."""
        go, self._go = self._go, None
        if go is not None:
            self._app.speech.start(go())
        return go is not None


def render_parting(app: "RetinueApp") -> tuple[str, str]:
    """The last answer and how to resume the session, for the terminal after the program has ended; empty if nothing
    was said.
    """
    talk, file = app.link.state.talk, app.link.crew.session_file
    if not talk.unread and not any(isinstance(block, UserBlock) for block in talk.blocks):
        return "", ""
    reply = talk.last_reply
    lines = clean("" if reply is None else reply.text).strip().split("\n")
    answer = fold_middle("\n".join(line[:MOST_COLUMNS] for line in lines), MOST_LINES - 1, 0)[0]
    if file is None:
        return answer, ""
    is_usual = not app.request.session.directory
    name = app.link.crew.header["id"] if is_usual else shlex.quote(str(file))
    return answer, f"To resume this session: retinue --session {name}"
