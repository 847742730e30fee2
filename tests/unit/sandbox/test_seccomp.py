import os
import re
import struct
from pathlib import Path

import pytest

from retinue.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ENOSYS,
    EPERM,
    KILL,
    NO_FAMILY,
    NUMBERS,
    Filter,
    build_filter,
    find_architecture,
)

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def interpret(program: bytes, number: int, arguments: tuple[int, ...] = (), audit: int = 0) -> int:
    """What the kernel would answer."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(arguments + (0,) * 6)[:6])
    code = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(operation)


def ask(architecture: str, rules: Filter, name: str, *arguments: int) -> int:
    number = NUMBERS[name][list(ARCHITECTURES).index(architecture)]
    assert number is not None
    return interpret(build_filter(architecture, rules), number, arguments, ARCHITECTURES[architecture])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dangerous_calls_are_denied(architecture: str) -> None:
    names = ["mount", "unshare", "setns", "io_uring_setup", "ptrace", "bpf", "keyctl", "open_by_handle_at", "reboot"]
    assert {name: ask(architecture, Filter(), name) for name in names} == dict.fromkeys(names, EPERM)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_unknown_calls_are_allowed(architecture: str) -> None:
    program = build_filter(architecture, Filter())
    listed = {number for pair in NUMBERS.values() for number in pair}
    answers = {interpret(program, number, (), ARCHITECTURES[architecture]) for number in set(range(470)) - listed}
    assert answers == {ALLOW}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sockets_depend_on_filter(architecture: str) -> None:
    families = (1, 2, 10, 16, 17, 38, 40)
    answers = {
        kind: [ask(architecture, Filter(sockets=kind), "socket", family) for family in families]
        for kind in ("none", "internet", "all")
    }
    assert answers == {
        "none": [EPERM] * 7,
        "internet": [NO_FAMILY] + [ALLOW] * 3 + [NO_FAMILY] * 3,
        "all": [ALLOW] * 4 + [NO_FAMILY] * 3,
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_metadata_is_denied_for_landlock(architecture: str) -> None:
    column = list(ARCHITECTURES).index(architecture)
    names = [name for name in NUMBERS if re.search("ch(mod|own)|utime|xattr|setattr", name) and name != "mount_setattr"]
    names = [name for name in names if NUMBERS[name][column] is not None]
    assert {ask(architecture, Filter(metadata=False), name) for name in names} == {EPERM}
    assert {ask(architecture, Filter(), name) for name in names} == {ALLOW}


@pytest.mark.attack("B15")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_terminal_input_is_denied(architecture: str) -> None:
    requests = {0x5412: EPERM, 0x541C: EPERM, 0x5401: ALLOW, 0x40086602: ALLOW}
    assert {each: ask(architecture, Filter(), "ioctl", 0, each) for each in requests} == requests
    # The kernel looks at the low half only, so what is in the high half must not matter.
    assert ask(architecture, Filter(), "ioctl", 0, 0x5412 | 1 << 32) == EPERM
    assert ask(architecture, Filter(metadata=False), "ioctl", 0, 0x40086602) == EPERM


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_namespaces_need_no_flag(architecture: str) -> None:
    rules = Filter(namespaces=False)
    assert [ask(architecture, rules, "clone", flags) for flags in (17, 0x10000011, 0x20000)] == [ALLOW, EPERM, EPERM]
    assert (ask(architecture, rules, "clone3"), ask(architecture, Filter(), "clone3")) == (ENOSYS, ALLOW)


def test_foreign_architectures_are_killed() -> None:
    program = build_filter("x86_64", Filter())
    i386, x86_64 = 0x40000003, ARCHITECTURES["x86_64"]
    assert interpret(program, 1, (), i386) == KILL
    assert [interpret(program, number | 0x40000000, (), x86_64) for number in (0, 1, 41)] == [EPERM] * 3


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_agree_with_headers(architecture: str) -> None:
    if not HEADERS[architecture].exists():
        pytest.skip("no kernel headers here")
    text = HEADERS[architecture].read_text()
    known = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    column = list(ARCHITECTURES).index(architecture)
    wrong = {name: pair[column] for name, pair in NUMBERS.items() if name in known and pair[column] != known[name]}
    assert wrong == {}


def test_this_machine_has_filter() -> None:
    assert find_architecture() == (os.uname().machine if os.uname().machine in ARCHITECTURES else "")
