import json

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
