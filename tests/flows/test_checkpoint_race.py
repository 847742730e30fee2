"""Checkpoints while somebody swaps links in: git opens a file a moment after it has looked at it."""

import os
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial

import pytest

from retinue.core.errors import RetinueError
from retinue.features.checkpoint.store import CheckpointStore
from retinue.testing import make_repo
from tests.needs import need_backend

FLIP = """
import ctypes
exchange = ctypes.CDLL(None).renameat2
print("ready", flush=True)
while True:
    exchange(-100, b"d", -100, b"link", 2)
    exchange(-100, b"d", -100, b"link", 2)
    for pause in range(200):
        pass
"""
SECRET = b"s" * 100


@pytest.mark.attack("J1")
async def test_link_swapped_in_shows_no_secret(tmp_path):
    need_backend("landlock")
    work, secrets = tmp_path / "work", tmp_path / "secrets"
    for folder in (work / "d", secrets):
        folder.mkdir(parents=True)
    (secrets / "key").write_bytes(SECRET)
    make_repo(work, {".gitignore": "link\n"})
    (work / "link").symlink_to(secrets)
    real = os.open(work / "d", os.O_RDONLY)
    store = CheckpointStore(work, tmp_path / "own", list_hidden=lambda: [str(secrets)])
    objects = {store.trees.name(SECRET)}
    with subprocess.Popen([sys.executable, "-c", FLIP], cwd=work, stdout=subprocess.PIPE) as flip:
        try:
            flip.stdout.readline()
            end_s = time.monotonic() + 25
            for number in range(200):
                if number >= 60 and time.monotonic() > end_s:
                    break  # a slow machine
                with open("key", "w", opener=partial(os.open, dir_fd=real)) as file:
                    file.write(f"{number:0100}")
                with suppress(RetinueError, OSError):
                    await store.take("restore", session="s")
        finally:
            flip.kill()
            os.close(real)
    listed = subprocess.run(
        ["git", "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"],
        cwd=work, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert (objects & set(listed), len(listed) > 20) == (set(), True)
