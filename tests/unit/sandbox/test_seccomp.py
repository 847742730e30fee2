import errno
import os
import re
import struct
import tomllib
from pathlib import Path

import pytest

from retinue.sandbox.seccomp import (
    ALLOW,
    ARCHITECTURES,
    ENOSYS,
    EPERM,
    KILL,
    NEWEST,
    NO_FAMILY,
    NO_REQUEST,
    NUMBERS,
    Filter,
    build_filter,
    find_architecture,
)

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


DATA = Path(__file__).parents[2] / "data" / "attack"


def read_numbers(architecture: str) -> dict[str, int]:
    text = HEADERS[architecture].read_text()
    return {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}


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
            case 0x54:
                accumulator &= value
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
def test_other_calls_are_allowed(architecture: str) -> None:
    program = build_filter(architecture, Filter())
    listed = {number for pair in NUMBERS.values() for number in pair}
    others = set(range(NEWEST + 1)) - listed
    assert {interpret(program, number, (), ARCHITECTURES[architecture]) for number in others} == {ALLOW}


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_of_tomorrow_are_missing(architecture: str) -> None:
    audit, rules = ARCHITECTURES[architecture], Filter("all", tracing=True)
    later = (NEWEST + 1, 600, 0x40000000, 0x40000029, 0xFFFFFFFF)
    assert {interpret(build_filter(architecture, rules), number, (), audit) for number in later} == {ENOSYS}


def load_calls() -> dict[str, dict[str, set[str]]]:
    table = tomllib.loads((DATA / "calls.toml").read_text(encoding="utf-8"))
    return {
        verdict: {name: set(entry["calls"].split()) for name, entry in groups.items()}
        for verdict, groups in table.items()
    }


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_table_says_what_filter_does(architecture: str) -> None:
    calls, column = load_calls(), list(ARCHITECTURES).index(architecture)
    bare = Filter(metadata=False, namespaces=False, apart=False)
    writers = Filter("all", tracing=True, namespaces=False)

    def judge(names: set[str], rules: Filter) -> set[int]:
        return {ask(architecture, rules, name) for name in names if NUMBERS[name][column] is not None}

    decided = {verdict: set().union(*groups.values()) for verdict, groups in calls.items()}
    assert set(NUMBERS) == set().union(*(decided[verdict] for verdict in ("never", "reader", "bare", "judged")))
    refused = {name: judge(calls["never"][name], writers) for name in ("kernel", "hidden")}
    assert refused == {"kernel": {EPERM}, "hidden": {ENOSYS}}
    for verdict in ("reader", "bare"):
        assert (judge(decided[verdict], bare), judge(decided[verdict], writers)) == ({EPERM}, {ALLOW})


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_call_is_decided(architecture: str) -> None:
    if not HEADERS[architecture].exists():
        pytest.skip("no kernel headers here")
    groups = [names for verdict in load_calls().values() for names in verdict.values()]
    decided = set().union(*groups)
    assert len(decided) == sum(map(len, groups))
    known = read_numbers(architecture)
    only = {"x86_64": set(), "aarch64": {"arch_specific_syscall", "sync_file_range2", "syscalls"}}[architecture]
    only |= {name for name in known if name.endswith(("64", "_llseek")) and known[name] > 402}
    assert {name for name, number in known.items() if number <= NEWEST} - decided - only == set()


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_processes_are_out_of_reach(architecture: str) -> None:
    rules = Filter(metadata=False, namespaces=False, apart=False)
    names = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    for name in names:
        assert [ask(architecture, rules, name, pid) for pid in (0, 1, 1 << 31, 7 | 1 << 32)] == [ALLOW] + [EPERM] * 3
        assert ask(architecture, Filter(), name, 7) == ALLOW
    whose = {"setpriority": (0, 1, 2), "ioprio_set": (1, 2, 3)}
    for name, (process, group, user) in whose.items():
        given = ((process, 0), (group, 0), (user, 0), (user | 1 << 32, 0), (process, 7), (group, 7), (user, 7))
        assert [ask(architecture, rules, name, *each) for each in given] == [ALLOW] * 2 + [EPERM] * 5


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_pairs_send_nowhere_else(architecture: str) -> None:
    flags = 0x80800
    kinds = [each for kind in (1, 2, 3, 4, 5) for each in (kind, kind | flags, kind | 1 << 32)]
    answers = {
        kind: [ask(architecture, Filter(sockets=kind), "socketpair", 1, each) == ALLOW for each in kinds]
        for kind in ("none", "internet", "all")
    }
    few = [True] * 3 + [False] * 9 + [True] * 3
    assert answers == {"none": few, "internet": few, "all": [True] * 15}


# Whatever changes a file, its flags or its disk: ext4, XFS, btrfs, F2FS, FAT, fscrypt, fs-verity and the generic ones.
CHANGING = (
    *(0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602, 0x40086604, 0x40046604, 0x6609, 0x6610, 0x660C),
    *(0x4008662B, 0xC028660F, 0x40086607, 0x660A, 0x40806685, 0x800C6613, 0x40106614, 0xC0185879, 0xC0045877),
    *(0xC0045878, 0xC0189436, 0x41009432, 0x5000940E, 0x5000940F, 0x50009401, 0x50009417, 0x50009402, 0x40047211),
    *(0xF501, 0x4004F502, 0x4030582A, 0x40305839, 0xC02C5823, 0x4008587D, 0xC0506617, 0xC0406618, 0xC0406619),
)


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_requests_change_no_file(architecture: str) -> None:
    bare = Filter(metadata=False, namespaces=False, apart=False)
    given = [each for request in CHANGING for each in (request, request | 1 << 32)]
    assert {ask(architecture, bare, "ioctl", 3, each) for each in given} <= {EPERM, NO_REQUEST}
    needed = (
        *(0x5401, 0x5413, 0x541B, 0x5421, 0x5451, 0x80045430, 0x8915, 0x80086601, 0xC020660B, 0x40049409, 2),
        *(0x80087601, 0x801C581F, 0x81009431, 0x80111500, 0x4020940D),
    )
    assert {ask(architecture, bare, "ioctl", 3, each) for each in needed} == {ALLOW}
    keys = (0xC0506617, 0xC0406618, 0xC0406619)
    assert {ask(architecture, Filter("all", tracing=True), "ioctl", 3, each) for each in keys} == {EPERM}


@pytest.mark.attack("I9")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lease_is_denied(architecture: str) -> None:
    rules = Filter("all", tracing=True)
    assert [ask(architecture, rules, "fcntl", 3, each) for each in (1024, 1024 | 1 << 32, 2)] == [EPERM, EPERM, ALLOW]


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
    names = [name for name in NUMBERS if re.search("ch(mod|own)|utime|xattr|file_setattr", name)]
    names = [name for name in names if NUMBERS[name][column] is not None]
    assert {ask(architecture, Filter(metadata=False), name) for name in names} == {EPERM}
    assert {ask(architecture, Filter(), name) for name in names} == {ALLOW}


@pytest.mark.attack("B15")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_terminal_input_is_denied(architecture: str) -> None:
    requests = dict.fromkeys((0x5412, 0x541C, 0x541D, 0x5423), EPERM)
    requests |= dict.fromkeys((0x5401, 0x541E, 0x5424, 0x40086602), ALLOW)
    assert {each: ask(architecture, Filter(), "ioctl", 0, each) for each in requests} == requests
    # The kernel looks at the low half only, so what is in the high half must not matter.
    assert ask(architecture, Filter(), "ioctl", 0, 0x5412 | 1 << 32) == EPERM


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_namespaces_need_no_flag(architecture: str) -> None:
    rules = Filter(namespaces=False)
    assert [ask(architecture, rules, "clone", flags) for flags in (17, 0x10000011, 0x20000)] == [ALLOW, EPERM, EPERM]
    assert {ask(architecture, each, "clone3") for each in (rules, Filter())} == {ENOSYS}


def test_foreign_architectures_are_killed() -> None:
    program = build_filter("x86_64", Filter())
    i386, x86_64 = 0x40000003, ARCHITECTURES["x86_64"]
    assert interpret(program, 1, (), i386) == KILL
    assert [interpret(program, number | 0x40000000, (), x86_64) for number in (0, 1, 41)] == [ENOSYS] * 3


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_agree_with_headers(architecture: str) -> None:
    if not HEADERS[architecture].exists():
        pytest.skip("no kernel headers here")
    known = read_numbers(architecture)
    column = list(ARCHITECTURES).index(architecture)
    wrong = {name: pair[column] for name, pair in NUMBERS.items() if name in known and pair[column] != known[name]}
    assert wrong == {}


def test_newest_numbers_are_those_of_the_kernel() -> None:
    # Headers that are installed are mostly older.
    newest = {"setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469}
    assert {name: NUMBERS[name] for name in newest} == {name: (number, number) for name, number in newest.items()}
    assert max(newest.values()) == NEWEST


def test_answers_are_those_of_the_kernel() -> None:
    # linux/audit.h: 64 bits, little endian, and the machine's number in an executable file.
    assert {name: 1 << 31 | 1 << 30 | machine for name, machine in (("x86_64", 62), ("aarch64", 183))} == ARCHITECTURES
    refusals = {EPERM: errno.EPERM, ENOSYS: errno.ENOSYS, NO_FAMILY: errno.EAFNOSUPPORT, NO_REQUEST: errno.ENOTTY}
    assert refusals == {0x50000 | number: number for number in refusals.values()}
    assert (ALLOW, KILL) == (0x7FFF0000, 0x80000000)


def test_this_machine_has_filter() -> None:
    assert find_architecture() == (os.uname().machine if os.uname().machine in ARCHITECTURES else "")
