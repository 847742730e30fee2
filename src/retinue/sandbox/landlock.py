"""Convert a sandbox profile to Landlock rules: rights for paths. The fork server applies them.

Landlock rules can only allow, so to hide a file everything beside it is allowed instead. Names of hidden files can
still be listed, and a command cannot read files that appear beside them while it runs.
"""

import ctypes
import os
import struct
from collections.abc import Collection, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from retinue.sandbox.profile import TMP_PREFIX, Profile, find_private_root, is_below, list_visible

LEAST_ABI = 3
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_FIRST_ABI = (1 << 13) - 1
READ = EXECUTE | READ_FILE
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_NR_CREATE_RULESET, _VERSION_FLAG = 444, 1
# Abstract sockets and signals do not cross the boundary.
_SCOPE_ALL = 3


SCOPE = "scope"
"""Sandbox feature: commands cannot reach abstract sockets of other programs."""
_SCOPE_SOCKETS, _SCOPE_ABI = 1, 6
_NR_RESTRICT_SELF, _PR_NO_NEW_PRIVS = 446, 38


class LandlockPlan(Struct, frozen=True):
    handled: int
    """Rights that are denied unless a rule grants them."""
    scoped: int
    rules: tuple[tuple[str, int], ...]


def read_abi() -> int:
    """Return the kernel's Landlock ABI version; 0 if it has no Landlock."""
    if os.name != "posix" or os.uname().sysname != "Linux":
        return 0
    found = ctypes.CDLL(None, use_errno=True).syscall(_NR_CREATE_RULESET, None, 0, _VERSION_FLAG)
    return max(int(found), 0)


def has_scopes() -> bool:
    """Return whether this kernel can isolate abstract sockets."""
    return read_abi() >= _SCOPE_ABI


def leave_sockets() -> None:
    """Cut this thread and its children off from abstract sockets of other programs; irreversible. Raises OSError.

    Does not restrict files: a thread with file restrictions cannot mount, and bubblewrap must.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    attributes = struct.pack("=QQQ", 0, 0, _SCOPE_SOCKETS)
    ruleset = _check(libc.syscall(_NR_CREATE_RULESET, attributes, len(attributes), 0))
    try:
        _check(libc.prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0))
        _check(libc.syscall(_NR_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def leave_files(profile: Profile, tmp: str) -> None:
    """Limit this thread and its children to a profile, if this kernel can; irreversible. Raises OSError."""
    from retinue.sandbox.forkserver import restrict_files

    abi = read_abi()
    if abi >= LEAST_ABI:
        plan = plan_rules(profile, abi, tmp=tmp)
        _check(ctypes.CDLL(None, use_errno=True).prctl(_PR_NO_NEW_PRIVS, 1, 0, 0, 0))
        restrict_files(plan.handled, 0, list(plan.rules))


def _check(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), f"Landlock: {os.strerror(ctypes.get_errno())}")
    return answer


def list_rights(abi: int) -> int:
    """Return all file rights that a Landlock version supports."""
    rights = _FIRST_ABI
    for least, right in ((2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)):
        rights |= right if abi >= least else 0
    return rights


def plan_rules(profile: Profile, abi: int, *, tmp: str, visible: Sequence[str] = ()) -> LandlockPlan:
    """Build the rules of a profile; `tmp` is the private temporary directory."""
    handled = list_rights(abi)
    device = (READ | WRITE_FILE | TRUNCATE | IOCTL_DEV) & handled
    secrets = tuple(path for path in (*profile.secrets, *_list_kept()) if os.path.exists(path))
    # Disks are devices in /dev, and root may read them; workspaces may be in /dev/shm.
    closed = (*secrets, "/dev")
    rules = [("/", READ_DIR), *((path, READ) for path in list_beside(closed))]
    rules += [(path, device) for path in DEVICES]
    rules += [(path, READ) for path in list_visible(profile, visible)]
    shown = (profile.workspace, *profile.exposed)
    rules += [(path, READ) for place in shown if is_below(place, closed) for path in _list_open(place, secrets)]
    written = () if profile.is_readonly else (profile.workspace, *profile.writable)
    for place in (tmp, *(path for path in written if not profile.is_hidden(path))):
        rules += [(path, handled & ~IOCTL_DEV) for path in _list_open(place, secrets)]
    return LandlockPlan(handled, _SCOPE_ALL if abi >= _SCOPE_ABI else 0, tuple(rules))


def _list_kept() -> list[str]:
    """Return where other processes of ours store long outputs; later directories have no rule and are denied anyway."""
    folder = os.path.dirname(find_private_root())
    try:
        names = [name for name in os.listdir(folder) if name.startswith(TMP_PREFIX)]
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names if not name.startswith(f"{TMP_PREFIX}{os.getpid()}-")]


def list_parted(profile: Profile) -> list[str]:
    """Return writable directories in which no direct entries can be created: that right would reveal a secret."""
    secrets = [path for path in profile.secrets if os.path.exists(path)]
    written = () if profile.is_readonly else (profile.workspace, *profile.writable)
    return [place for place in written if any(is_below(secret, [place]) for secret in secrets)]


def _list_open(place: str, secrets: Sequence[str]) -> list[str]:
    """Return the directory itself, or only the parts that contain no secrets."""
    inner = [secret for secret in secrets if is_below(secret, [place]) and secret != place]
    return list(list_beside(inner, place)) if inner else [place]


def list_beside(secrets: Sequence[str], root: str = "/") -> Iterator[str]:
    """Yield the fewest paths that contain everything under `root` except the secrets."""
    hidden = {secret.rstrip("/") or "/" for secret in secrets}
    if not is_below(root, hidden):
        above = {str(parent) for secret in hidden for parent in PurePosixPath(secret).parents}
        yield from _walk_beside(hidden, above, root)


def _walk_beside(hidden: Collection[str], above: Collection[str], root: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        # A link's target is allowed or denied under its own path.
        if entry.is_symlink() or entry.path in hidden:
            continue
        if entry.path in above:
            yield from _walk_beside(hidden, above, entry.path)
        else:
            yield entry.path
