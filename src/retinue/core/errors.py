"""Every error that retinue raises on purpose.

RetinueError            something a person can act on; the message says what, where and what to do
├── UsageError          the command line or an API call is wrong (exit status 2)
│   ├── UnknownAgent    no agent has this name
│   └── DisabledAgent   the agent is switched off
├── ConfigError         a file is wrong: names file, field, value and what is accepted (exit status 2)
├── ModelError          no such model, or no way to reach it (exit status 2)
├── SessionError        a session cannot be found, read or written
│   ├── SessionNotFound
│   ├── SessionLocked   another process writes it
│   └── SessionUnsaved  a write failed: what was shown is not on disk
├── CompactionFailed    no usable summary; the context is unchanged
├── IsolationFailed     a run cannot have a copy of the repository of its own
└── ToolFailed          a tool call cannot succeed as asked; the text goes to the model
    └── ToolRetry       the same, and another call would do better
"""


class RetinueError(Exception):
    """Base of all errors that retinue raises on purpose."""

    exit_status = 1


class UsageError(RetinueError):
    """Raised when a command line or an API call is wrong."""

    exit_status = 2


class UnknownAgent(UsageError):
    """Raised when no agent has the given name; the message lists those there are."""


class DisabledAgent(UsageError):
    """Raised when an agent is switched off."""


class ConfigError(RetinueError):
    """Raised when a file that retinue reads is wrong."""

    exit_status = 2


class ModelError(RetinueError):
    """Raised when a model cannot be found or reached."""

    exit_status = 2


class SessionError(RetinueError):
    """Raised when a session cannot be used."""


class SessionNotFound(SessionError):
    """Raised when no session has the given path or id."""

    exit_status = 2


class SessionLocked(SessionError):
    """Raised when another process is writing the session."""


class SessionUnsaved(SessionError):
    """Raised when an entry could not be written; the session is as before the attempt."""


class CompactionFailed(RetinueError):
    """Raised when a context could not be summarised; it is as before the attempt."""

    def __init__(self, text: str, kind: str = "") -> None:
        """`kind` is that of the model's failure, if that was the reason."""
        super().__init__(text)
        self.kind = kind


class IsolationFailed(RetinueError):
    """Raised when a run cannot work in a copy of its own; it MUST NOT run without."""


class ToolFailed(RetinueError):
    """Raised by a tool whose call cannot succeed; the model reads the message."""


class ToolRetry(ToolFailed):
    """Raised by a tool that wants a better call; the message says which."""


def quote(value: object, limit: int = 80) -> str:
    """A bad value for an error message: quoted, escaped and bounded."""
    text = value if isinstance(value, str) else repr(value)
    shown = ascii(text if len(text) <= limit else text[: limit - 1] + "…")
    return shown.replace("\\u2026", "…")
