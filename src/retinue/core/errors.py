"""Every error that retinue raises on purpose.

RetinueError            the user can act on it; the message says what, where and what to do
├── UsageError          the command line or an API call is wrong (exit status 2)
│   ├── UnknownAgent    no agent has this name
│   └── DisabledAgent   the agent is switched off
├── ConfigError         a file is wrong: names file, field, value and what is accepted (exit status 2)
├── ModelError          the model does not exist or cannot be reached (exit status 2)
│   └── KeyRefused      the provider does not accept a key
├── SessionError        a session cannot be found, read or written
│   ├── SessionNotFound
│   ├── SessionLocked   another process writes it
│   └── SessionUnsaved  a write failed: the last entries are not on disk
├── CompactionFailed    no usable summary; the context is unchanged
├── IsolationFailed     a run cannot get its own copy of the repository
└── ToolFailed          a tool call cannot succeed as asked; the text goes to the model
    └── ToolRetry       a different call may succeed
"""


class RetinueError(Exception):
    exit_status = 1


class UsageError(RetinueError):
    exit_status = 2


class UnknownAgent(UsageError):
    """Raised with a message that lists the agents that exist."""


class DisabledAgent(UsageError): ...


class ConfigError(RetinueError):
    exit_status = 2


class ModelError(RetinueError):
    exit_status = 2


class KeyRefused(ModelError): ...


class SessionError(RetinueError): ...


class SessionNotFound(SessionError):
    exit_status = 2


class SessionLocked(SessionError): ...


class SessionUnsaved(SessionError):
    """An entry could not be written; the session is unchanged."""


class CompactionFailed(RetinueError):
    def __init__(self, text: str, kind: str = "") -> None:
        """`kind` is the kind of the model failure that caused this, if any."""
        super().__init__(text)
        self.kind = kind


class IsolationFailed(RetinueError):
    """A run cannot get its own copy of the repository; it MUST NOT run without one."""


class ToolFailed(RetinueError):
    """Raised by a tool whose call cannot succeed; the model sees the message."""


class ToolRetry(ToolFailed):
    """Raised by a tool that wants a better call; the message says what to change."""


def quote(value: object, limit: int = 80) -> str:
    """Format a bad value for an error message: quoted, escaped and shortened."""
    text = value if isinstance(value, str) else repr(value)
    shown = ascii(text if len(text) <= limit else text[: limit - 1] + "…")
    return shown.replace("\\u2026", "…")
