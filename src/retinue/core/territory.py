"""Where the file tools of one run may go: a value. Must not know how it is enforced, nor who decides it."""

from collections.abc import Callable

from msgspec import Struct, field


class Territory(Struct, frozen=True):
    """Reading is free but for what is hidden; changing is not, unless nothing is said."""

    roots: tuple[str, ...] | None = None
    """Real paths of the directories below which files may be changed; None: everywhere."""
    hidden: tuple[str, ...] = ()
    """Real paths of files and directories that are not read, whatever name leads to them."""
    protected: tuple[str, ...] = ()
    """Real paths below the roots that are not changed, also where nothing is yet."""
    granted: tuple[str, ...] = ()
    """Directories that may be changed wherever they lie, also in what is protected."""
    exposed: tuple[str, ...] = ()
    """Real paths of directories that are read although what is around them is hidden."""
    made: set[str] = field(default_factory=set)
    """Configuration folders and repositories below the roots that agents have made, and may change for that."""
    list_guarded: Callable[[], tuple[str, ...]] = tuple
    """More that is not changed, as it is found when somebody asks."""


ANYWHERE = Territory()
