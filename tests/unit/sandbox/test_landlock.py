import os
from pathlib import Path

import pytest

from retinue.sandbox.landlock import (
    EXECUTE,
    IOCTL_DEV,
    LEAST_ABI,
    READ,
    READ_DIR,
    READ_FILE,
    REFER,
    TRUNCATE,
    WRITE_FILE,
    has_scopes,
    list_beside,
    list_parted,
    list_rights,
    plan_rules,
    read_abi,
)
from retinue.sandbox.profile import TMP_PREFIX, Profile, is_below
from tests import needs


def test_rights_grow_with_version() -> None:
    new = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
    assert {abi: list_rights(abi) ^ list_rights(abi - 1) for abi in range(2, 7)} == {
        abi: new.get(abi, 0) for abi in range(2, 7)
    }


def test_workspace_in_shared_memory_can_be_read() -> None:
    plan = plan_rules(Profile("/work", "read_only", exposed=("/dev/shm/work",)), 7, tmp="/private")
    assert ("/dev/shm/work", READ) in plan.rules and "/dev" not in dict(plan.rules)


def test_everything_beside_secret_is_listed(tmp_path: Path) -> None:
    for name in ("a/x", "a/secret/deep", "b", "c/d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("a/secret")
    found = list(list_beside([str(tmp_path / "a" / "secret")], str(tmp_path)))
    assert found == [str(tmp_path / name) for name in ("a/x", "b", "c")]


def test_readonly_writes_only_tmp(tmp_path: Path) -> None:
    plan = plan_rules(Profile(str(tmp_path)), 7, tmp="/private")
    written = [path for path, rights in plan.rules if rights & WRITE_FILE and not path.startswith("/dev/")]
    assert (written, plan.scoped) == (["/private"], 3)


def test_workspace_is_written(tmp_path: Path) -> None:
    profile = Profile(str(tmp_path), "workspace_write", writable=("/more",))
    plan = plan_rules(profile, 3, tmp="/private")
    written = [path for path, rights in plan.rules if rights & WRITE_FILE and not path.startswith("/dev/")]
    assert (written, plan.scoped) == (["/private", str(tmp_path), "/more"], 0)


def test_secret_has_no_rule(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "other").mkdir()
    plan = plan_rules(Profile(str(tmp_path), secrets=(str(tmp_path / "secret"),)), 7, tmp="/private")
    reading = [path for path, rights in plan.rules if rights & READ_FILE]
    assert str(tmp_path / "other") in reading
    assert [path for path in reading if is_below(str(tmp_path / "secret"), [path])] == []
    assert READ == READ_FILE | EXECUTE


def test_numbers_are_those_of_the_kernel() -> None:
    # linux/landlock.h
    assert (EXECUTE, WRITE_FILE, READ_FILE, READ_DIR) == (1, 2, 4, 8)
    assert (REFER, TRUNCATE, IOCTL_DEV) == (0x2000, 0x4000, 0x8000)
    assert [list_rights(abi) for abi in (1, 2, 3, 4, 5, 7)] == [0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF]
    assert LEAST_ABI == 3  # the first that knows truncation
    assert read_abi() == needs.read_abi()
    assert has_scopes() is (needs.read_abi() >= 6)


@pytest.mark.parametrize(("abi", "scoped"), [(5, 0), (6, 3), (7, 3)])
def test_signals_and_sockets_end_where_the_kernel_can(abi: int, scoped: int, tmp_path: Path) -> None:
    plan = plan_rules(Profile(str(tmp_path)), abi, tmp="/private")
    assert (plan.scoped, plan.handled) == (scoped, list_rights(abi))


def test_devices_and_directories_have_their_rights(tmp_path: Path) -> None:
    rules = plan_rules(Profile(str(tmp_path), "workspace_write"), 5, tmp="/private").rules
    all_rights = list_rights(5)
    device = READ_FILE | EXECUTE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    assert {rights for path, rights in rules if path.startswith("/dev/")} == {device}
    assert ("/", READ_DIR) in rules
    assert [(path, rights) for path, rights in rules if path in ("/private", str(tmp_path))] == [
        ("/private", all_rights & ~IOCTL_DEV),
        (str(tmp_path), all_rights & ~IOCTL_DEV),
    ]
    assert {rights for path, rights in plan_rules(Profile("/w"), 3, tmp="/p").rules if path == "/dev/null"} == {
        device & ~IOCTL_DEV
    }


def test_workspace_in_a_hidden_place_is_seen(tmp_path: Path) -> None:
    work, shown = tmp_path / "hidden" / "work", tmp_path / "hidden" / "shown"
    for folder in (work / "a", work / "key", shown):
        folder.mkdir(parents=True)
    hidden = (str(tmp_path / "hidden"), str(work / "key"), str(tmp_path / "missing"))
    profile = Profile(str(work), "workspace_write", secrets=hidden, exposed=(str(shown),))
    rules = plan_rules(profile, 3, tmp="/private", visible=["/usr/bin"]).rules
    reading = [path for path, rights in rules if rights == READ]
    assert {str(work / "a"), str(shown), os.path.realpath("/usr/bin")} <= {*reading}
    assert {str(work), str(work / "key")} & {path for path, _ in rules} == set()
    assert (list_parted(profile), list_parted(Profile(str(work), secrets=hidden))) == ([str(work)], [])


def test_outputs_of_other_processes_have_no_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = (f"{TMP_PREFIX}{os.getpid()}-own", f"{TMP_PREFIX}1-other", "plain")
    for name in names:
        (tmp_path / name).mkdir()
    rules = plan_rules(Profile("/w"), 3, tmp="/private").rules
    reading = [path for path, rights in rules if rights & READ_FILE]
    assert [is_below(str(tmp_path / name), reading) for name in names] == [True, False, True]
