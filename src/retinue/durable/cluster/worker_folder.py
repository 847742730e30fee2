"""Checks whether runs can work in a worker's folder. Leaves nothing behind, and must not know runs."""

import asyncio
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from retinue.core.errors import ConfigError, quote
from retinue.durable.trouble import DurableTrouble, TroubleNotifier

if TYPE_CHECKING:
    from retinue.durable.cluster.dbos_queues import WorkerQueues

LOOK_S = 5.0
LEAST_BYTES = 16 << 20
LEAST_FILES = 100
FEW_BYTES = 1 << 30
"""Below this a warning is given; repositories and builds need space."""
_BLOCK = b"\0" * 4096
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs", "virtiofs"}
_OURS = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE))


class FolderWatch:
    """Keeps a worker from taking runs that could only fail on it."""

    def __init__(self, folder: Path, alarm: TroubleNotifier) -> None:
        self._folder = folder
        self._alarm = alarm
        self.usable = asyncio.Event()
        """Whether a run that was taken may begin."""
        self.usable.set()

    async def check(self) -> None:
        """Raise ConfigError if runs cannot work in the folder."""
        if problem := await asyncio.to_thread(find_problem, self._folder):
            raise ConfigError(
                f"no run can work in the worker's folder {quote(str(self._folder), 200)}: {problem}; fix that, or "
                "name another folder by RETINUE_WORKER_DIR"
            )

    async def run(self, worker: str, queues: "WorkerQueues") -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                problem = await asyncio.to_thread(find_problem, self._folder)
                if problem:
                    self.usable.clear()
                    queues.pause()
                    told = f"worker {worker}: its folder {quote(str(self._folder), 200)}"
                    text = f"{told}: {problem}; it takes no runs until that is fixed"
                    self._alarm.note(self, DurableTrouble("folder", text, f"{told} can be used again"))
                elif not self.usable.is_set():
                    self._alarm.clear(self)
                    queues.resume()
                    self.usable.set()
        finally:
            self._alarm.clear(self)
            self.usable.set()


def find_problem(folder: Path) -> str:
    """Return why no run can work there; empty if one can. For a missing folder its existing parent is checked."""
    place = _find_existing(folder)
    try:
        with tempfile.TemporaryDirectory(prefix=".retinue-look-", dir=place) as made:
            (Path(made) / "file").write_bytes(_BLOCK)
        told = os.statvfs(place)
    except OSError as error:
        return (error.strerror or str(error)).lower()
    free = told.f_bavail * told.f_frsize
    if free < LEAST_BYTES:
        return f"only {free >> 20} MiB are free"
    if told.f_files and told.f_favail < LEAST_FILES:
        return f"only {told.f_favail} more files can be created (inodes)"
    return ""


def list_remarks(folder: Path) -> list[str]:
    """Return warnings about what works, but not well."""
    place, remarks = _find_existing(folder), []
    told = os.statvfs(place)
    free = told.f_bavail * told.f_frsize
    if free < FEW_BYTES:
        remarks.append(f"only {free >> 20} MiB are free")
    kind = _find_kind(place)
    if kind in _REMOTE:
        remarks.append(f"it is on a disk of another machine ({kind}): git and locks need a local disk")
    if Path(os.path.realpath(folder)).is_relative_to("/tmp"):
        remarks.append("it is below /tmp, which sandboxes hide from runs")
    return remarks


def is_ours(error: str) -> bool:
    """Return whether a run has failed for a reason that lies with this machine."""
    return any(words in error for words in _OURS)


def _find_existing(folder: Path) -> Path:
    return next(parent for parent in (folder, *folder.absolute().parents) if os.path.lexists(parent))


def _find_kind(place: Path) -> str:
    """Return the file system type of a folder; empty if unknown."""
    real, best, kind = os.path.realpath(place), "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        point = before.split(" ")[4].replace("\\040", " ")
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, after.split(" ")[0]
    return kind
