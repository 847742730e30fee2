"""Regular expressions that are compiled at their first use: a start needs few of those that modules define."""

import re
from typing import Any, AnyStr, cast


class _LatePattern:
    def __init__(self, text: Any, flags: int) -> None:
        self._arguments = text, flags

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not there yet: afterwards a method is as fast as that of the pattern itself.
        value = self.__dict__[name] = getattr(re.compile(*self._arguments), name)
        return value


def late_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, for a constant of a module; errors in the expression show at its first use."""
    return cast("re.Pattern[AnyStr]", _LatePattern(text, flags))
