"""The sandbox status: what this machine can enforce, as data and as a sentence."""

from typing import Any, Literal, TypeAlias

from msgspec import Struct

State: TypeAlias = Literal["enforced", "partial", "unavailable"]
Backend: TypeAlias = Literal["bwrap", "landlock", "seatbelt", "none"]

SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
_NAMES = {"bwrap": "bubblewrap", "landlock": "Landlock and seccomp", "seatbelt": "sandbox-exec", "none": "nothing"}


def explain_unavailable(reason: str) -> str:
    """Return the message that the model gets instead of a command's output."""
    return f"{SANDBOX_UNAVAILABLE}: {reason}. The command was not run: commands never run outside the sandbox."


class SandboxStatus(Struct, frozen=True):
    """What the probe found."""

    state: State
    backend: Backend = "none"
    reason: str = ""
    """Why the sandbox is partial or unavailable."""
    weaker: tuple[str, ...] = ()
    """Weaknesses compared with the strongest backend."""
    program: str = ""
    version: str = ""
    features: frozenset[str] = frozenset()

    @property
    def is_usable(self) -> bool:
        """Whether read-only commands can be run."""
        return self.state != "unavailable"

    @property
    def sentence(self) -> str:
        if self.state == "unavailable":
            return f"unavailable: {self.reason}"
        how = "partly enforced" if self.state == "partial" else self.state
        by = f"{how} by {_NAMES[self.backend]}{f' {self.version}' if self.version else ''}"
        more = [text for text in (self.reason, *self.weaker) if text]
        return f"{by}; {'; '.join(more)}" if more else by

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "backend": self.backend,
            "version": self.version,
            "reason": self.reason,
            "weaker": list(self.weaker),
        }
