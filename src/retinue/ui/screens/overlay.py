"""What all that lies over the main screen has in common: keys that come before there is anything to see go nowhere."""

from typing import Generic, TypeVar

from textual.screen import ModalScreen

Answer = TypeVar("Answer")


class Overlay(ModalScreen[Answer], Generic[Answer]):
    """Gives something back when it is left."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing can be done with what is not there yet."""
        return self.is_mounted
