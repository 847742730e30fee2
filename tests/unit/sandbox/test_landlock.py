from pathlib import Path

from retinue.sandbox.landlock import (
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_FILE,
    REFER,
    TRUNCATE,
    WRITE_FILE,
    list_beside,
    list_rights,
    plan_rules,
)
from retinue.sandbox.profile import Profile, is_below


def test_rights_grow_with_version() -> None:
    new = {2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
    assert {abi: list_rights(abi) ^ list_rights(abi - 1) for abi in range(2, 7)} == {
        abi: new.get(abi, 0) for abi in range(2, 7)
    }


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
