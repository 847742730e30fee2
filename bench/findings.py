"""What a sweep of kills found to be wrong, by kind. Knows nothing of what was killed."""

from dataclasses import dataclass, field, fields


@dataclass(slots=True)
class Findings:
    """A sentence for each thing that is wrong; nothing may be. Who sweeps adds kinds, and numbers of what was tried."""

    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> dict[str, list[str]]:
        """All kinds, and what was found of each."""
        return {each.name: found for each in fields(self) if isinstance(found := getattr(self, each.name), list)}

    @property
    def all(self) -> list[str]:
        """Everything that is wrong, with its kind."""
        return [f"{name}: {line}" for name, lines in self.wrong.items() for line in lines]
