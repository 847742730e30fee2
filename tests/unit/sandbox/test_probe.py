"""What the probe makes of programs that behave like a sandbox, or do not."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from retinue.sandbox import probe, seatbelt
from retinue.sandbox.bwrap import FEATURES
from retinue.sandbox.cgroup import ControlGroup
from retinue.sandbox.landlock import SCOPE, has_scopes
from retinue.sandbox.probe import Machine, Probe, find_program, find_status, try_landlock, try_seatbelt
from retinue.sandbox.server import ForkServer

PROGRAM = """#!/bin/sh
[ "$1" = --version ] && echo bubblewrap 9.9 && exit
for last; do
    [ "$last" = "{refused}" ] && echo "unknown option" >&2 && exit 1
done
{text}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    (tmp_path / "groups").mkdir()
    found = ForkServer(control_group=ControlGroup(str(tmp_path / "groups"), is_root=False))
    yield found
    found.close()


def make_program(folder: Path, text: str, refused: str = "-") -> Probe:
    path = folder / "bwrap"
    path.write_text(PROGRAM.format(text=text, refused=refused))
    path.chmod(0o755)
    return Probe((str(folder),), ("bwrap",))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("exit 4", "a read-only command could write"),
        ('touch "$last/written"; exit 7', "a read-only command could write"),
        ("exit 3", "the test command ended with 3"),
        ("exit 0", "the test command ended with 0"),
        ("echo oh no >&2; exit 1", "oh no"),
        (
            "echo bwrap: setting up uid map >&2; exit 1",
            "this container lacks CAP_SETFCAP, so user 0 cannot be mapped (bwrap: setting up uid map)",
        ),
    ],
)
def test_program_that_fails_is_not_used(text: str, reason: str, tmp_path: Path, server: ForkServer) -> None:
    status = find_status(make_program(tmp_path, text), server)
    assert (status.state, status.reason) == ("unavailable", f"{tmp_path}/bwrap 9.9 does not work here: {reason}")


@pytest.mark.parametrize(
    ("refused", "state", "lacks"),
    [
        ("-", "enforced", ()),
        ("--disable-userns", "enforced", ("disable-userns",)),
        ("--size", "partial", ("size",)),
    ],
)
def test_older_program_goes_without(
    refused: str, state: str, lacks: tuple[str, ...], tmp_path: Path, server: ForkServer
) -> None:
    status = find_status(make_program(tmp_path, "exit 7", refused), server)
    scope = {SCOPE} if has_scopes() else set()
    assert (status.state, status.backend, status.version) == (state, "bwrap", "9.9")
    assert status.features == {*FEATURES, *scope} - {*lacks}
    assert (bool(status.weaker), bool(status.reason)) == (not has_scopes(), state == "partial")


def test_program_with_rights_of_its_own_is_not_scoped(tmp_path: Path, server: ForkServer) -> None:
    chosen = make_program(tmp_path, "exit 7")
    (tmp_path / "bwrap").chmod(0o4755)
    status = find_status(chosen, server)
    assert (SCOPE in status.features, len(status.weaker)) == (False, 1)


def test_missing_program_is_named(tmp_path: Path, server: ForkServer) -> None:
    status = find_status(Probe((str(tmp_path), "/none"), ("bwrap",)), server)
    assert status.reason == f"bwrap was not found in {tmp_path}, /none (install the package bubblewrap)"
    assert find_status(Probe(backends=()), server).reason == "there is no sandbox for this system"


def test_program_is_looked_for_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in (("a", 0o644), ("b", 0o755), ("c", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").touch(mode)
    (tmp_path / "folder" / "x").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    dirs = ["b", *(str(tmp_path / name) for name in ("folder", "a", "b", "c"))]
    assert (find_program("x", dirs), find_program("x", dirs[:3])) == (str(tmp_path / "b" / "x"), "")


@pytest.mark.parametrize(("abi", "told"), [(0, "this kernel has no Landlock"), (2, "is version 2, 3 is needed")])
def test_old_kernel_is_told(abi: int, told: str, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retinue.sandbox.landlock.read_abi", lambda: abi)
    assert told in try_landlock(Probe(), server).reason


def test_unknown_machine_has_no_filter(tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "find_architecture", str)
    chosen = make_program(tmp_path, "exit 7")
    assert find_status(chosen, server).reason == f"there is no system call filter for {os.uname().machine}"


@pytest.mark.parametrize(
    ("text", "state", "reason"),
    [
        ("", "unavailable", "PROGRAM is missing"),
        ("exit 7", "partial", "its profile is untested: none of our tests has run on macOS"),
        ("exit 4", "unavailable", "sandbox-exec does not work here: a read-only command could write"),
    ],
)
def test_program_of_macos_is_tried(
    text: str, state: str, reason: str, tmp_path: Path, server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "bwrap")
    if text:
        make_program(tmp_path, text)
    monkeypatch.setattr(seatbelt, "PROGRAM", path)
    assert try_seatbelt(Probe(), server).state == "unavailable"
    monkeypatch.setattr(sys, "platform", "darwin")
    status = try_seatbelt(Probe(), server)
    assert (status.state, status.reason) == (state, reason.replace("PROGRAM", path))
    assert {each(Probe(), server).reason for each in (probe.try_bwrap, try_landlock)} == {""}


async def test_machine_is_tried_once(tmp_path: Path) -> None:
    machine = Machine(make_program(tmp_path, f"echo x >>{tmp_path}/tried; exit 7"))
    first = await machine.find()
    assert (await machine.find() is first, machine.look() is first) == (True, True)
    assert (tmp_path / "tried").read_text() == "x\n"
    machine.forget()
    assert (machine.look() == first, (tmp_path / "tried").read_text()) == (True, "x\nx\n")
    machine.close()
