import json
import os
import subprocess
import sys

import pytest

from retinue.features.activity import MAX_BYTES, Activity, ActivityLog, find_log


def make_entry(tool="read", status="success", **more):
    return Activity(0, tool, status, more.pop("duration_ms", 10), **more)


def test_entries_come_back(tmp_path):
    log = find_log(tmp_path, tmp_path / "project")
    entries = [make_entry(), make_entry("bash", "error", code="TIMEOUT", agent="Explore", run="1")]
    for entry in entries:
        log.append(entry)
    assert (ActivityLog(log.path).read(), log.path.stat().st_mode & 0o777) == (entries, 0o600)


def test_torn_lines_are_left_out(tmp_path):
    log = ActivityLog(tmp_path / "log")
    log.append(make_entry())
    log.path.write_bytes(log.path.read_bytes() + b'{"atMs": 1, "to\n\xff\n')
    log.append(make_entry("ls"))
    assert [entry.tool for entry in log.read()] == ["read", "ls"]


def test_log_stays_small(tmp_path):
    log = ActivityLog(tmp_path / "log")
    line = json.dumps({"atMs": 0, "tool": "read", "status": "success"}).encode() + b"\n"
    log.path.write_bytes(line * (MAX_BYTES // len(line) + 1))
    log.append(make_entry("last"))
    assert log.path.stat().st_size <= MAX_BYTES // 2
    assert log.read()[-1].tool == "last"


def test_full_disks_stop_nobody(tmp_path):
    (tmp_path / "file").write_text("")
    log = ActivityLog(tmp_path / "file" / "log")
    log.append(make_entry())
    assert log.read() == []


def test_torn_end_swallows_nothing(tmp_path):
    log = ActivityLog(tmp_path / "log")
    log.append(make_entry())
    log.path.write_bytes(log.path.read_bytes() + b'{"atMs": 1, "to')
    log.append(make_entry("ls"), make_entry("grep"))
    assert [entry.tool for entry in log.read()] == ["read", "ls", "grep"]


def test_odd_files_are_not_read(tmp_path):
    for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to(tmp_path / "other")):
        log = ActivityLog(tmp_path / "log")
        make(log.path)
        log.append(make_entry())
        assert log.read() == []
        log.path.rmdir() if log.path.is_dir() else log.path.unlink()
    assert not (tmp_path / "other").exists()


def test_times_out_of_range_are_left_out(tmp_path):
    log = ActivityLog(tmp_path / "log")
    times = (-(10**18), 0, 10**12, 10**17, 10**18)
    log.path.write_text("".join(json.dumps({"atMs": at, "tool": "t", "status": "success"}) + "\n" for at in times))
    assert [entry.at_ms for entry in log.read()] == [0, 10**12]


WRITER = """
import sys
from pathlib import Path
import retinue.features.activity as activity
activity.MAX_BYTES = int(sys.argv[3])
log = activity.ActivityLog(Path(sys.argv[1]))
for number in range(400):
    log.append(activity.Activity(number, f"{sys.argv[2]}-{number}", "success", 1))
"""


@pytest.mark.parametrize("most", [10_000_000, 8_000])
def test_writers_side_by_side_lose_nothing(tmp_path, most):
    path = tmp_path / "log"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, f"w{name}", str(most)]) for name in range(3)]
    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = path.read_bytes().splitlines()
    found = [entry.tool for entry in ActivityLog(path).read()]
    assert (len(found), len(set(found))) == (len(lines), len(lines))
    if most > 1_000_000:
        assert len(found) == 1200
    for name in ("w0", "w1", "w2"):
        # What is kept of one writer is its end, without a hole.
        own = [int(tool.partition("-")[2]) for tool in found if tool.startswith(name)]
        assert own == list(range(own[0], 400)) if own else most < 1_000_000
