"""Build seccomp filters (BPF bytes) for each supported architecture. Pure: does not load them.

A denied call returns EPERM, so that programs can continue; a call of a foreign architecture kills the process.
tests/data/attack/calls.toml records the decision for each system call.
"""

import os
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

Sockets: TypeAlias = Literal["none", "internet", "all"]

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
NO_FAMILY, NO_REQUEST = 0x00050061, 0x00050019
"""What a kernel without such sockets answers, or a file that does not support the request."""
NEWEST = 469
"""The newest call that was reviewed; later ones get ENOSYS, as on an older kernel."""

# Name → number on x86_64 and aarch64; None if it does not exist there.
NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "ioctl": (16, 29),
    "clone": (56, 220),
    "clone3": (435, 435),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "open_by_handle_at": (304, 265),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "setxattrat": (463, 463),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "socketpair": (53, 199),
    "fcntl": (72, 25),
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "memfd_secret": (447, 447),
    "uselib": (134, None),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
_TRACING = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp"),
    *("move_pages", "migrate_pages", "process_madvise", "process_mrelease"),
)
# Objects with global numbers or names, shared by all programs of the user.
_SHARED = (
    *("shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
)
# Their first argument is a pid; 0 is the caller. The filter cannot tell whether another pid is the caller's own.
_OF_PROCESS = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
# Their first argument is the type of the second; this value means a user id.
_OF_USER = {"setpriority": 2, "ioprio_set": 3}
_SYSTEM = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("mount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "pivot_root", "chroot", "unshare", "setns", "bpf", "perf_event_open"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("add_key", "request_key", "keyctl", "userfaultfd", "open_by_handle_at"),
    *("swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd", "memfd_secret", "uselib"),
)
_METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    *("removexattrat", "file_setattr"),
)
# TIOCSTI TIOCLINUX TIOCCONS TIOCSETD: they inject terminal input or change the line discipline.
_TERMINAL = (0x5412, 0x541C, 0x541D, 0x5423)
# FS_IOC_ADD_ENCRYPTION_KEY, _REMOVE_, _REMOVE_ALL_USERS: they lock and unlock the user's files on any mount.
_DISK_KEYS = (0xC0506617, 0xC0406618, 0xC0406619)
# Requests of terminals, pipes and sockets, by their type byte.
_KINDS = (0x5400, 0x8900)
_KIND = 0xFF00
# FIGETBSZ FS_IOC_GETFLAGS FS_IOC_GETVERSION FS_IOC_FSGETXATTR FS_IOC_FIEMAP FS_IOC_GETFSLABEL FS_IOC_GETFSUUID only
# read; FICLONE FICLONERANGE write to a file that was opened for writing.
_REQUESTS = (
    *(0x2, 0x80086601, 0x80087601, 0x801C581F, 0xC020660B, 0x81009431, 0x80111500),
    *(0x40049409, 0x4020940D),
)
_F_SETLEASE = 1024
# NEWTIME NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_CLONE_NEW = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_AF_UNIX = 1
# STREAM and SEQPACKET: one end of any other pair can send to a socket file.
_TYPES, _TYPE = (1, 5), 0xF
# UNIX, INET, INET6, NETLINK. Others reach the host of a virtual machine, or rarely used kernel code.
_FAMILIES = (_AF_UNIX, 2, 10, 16)
_LOAD, _AND, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16


class Filter(Struct, frozen=True):
    """What a filter allows; everything else in the tables is denied."""

    sockets: Sockets = "none"
    """Socket families that may be created, `all` meaning all usual ones; `socketpair` always works."""
    tracing: bool = False
    """Processes may inspect each other."""
    metadata: bool = True
    """Modes, owners, times and attributes of files may be changed."""
    namespaces: bool = True
    """The filter does not block new namespaces, because something else does."""
    apart: bool = True
    """Namespaces and mounts already isolate processes, shared memory and files; otherwise the filter must."""


def find_architecture() -> str:
    """Return this process's architecture if there is a filter for it, else an empty string."""
    machine = os.uname().machine
    # A 32-bit program on a 64-bit kernel would need another table.
    return machine if machine in ARCHITECTURES and struct.calcsize("P") == 8 else ""


@lru_cache(maxsize=16)
def build_filter(architecture: str, rules: Filter) -> bytes:
    """Return the BPF program. Raises KeyError for an unknown architecture."""
    column = list(ARCHITECTURES).index(architecture)
    audit = ARCHITECTURES[architecture]

    def find(names: Iterable[str]) -> list[int]:
        return [number for name in names if (number := NUMBERS[name][column]) is not None]

    def number(name: str) -> int:
        return find([name])[0]

    code = [
        _pack(_LOAD, value=_ARCHITECTURE_AT),
        _pack(_JUMP_EQUAL, 1, 0, audit),
        _pack(_RETURN, value=KILL),
        _pack(_LOAD, value=_NUMBER_AT),
        # Also rejects x32 calls, which reach the same functions under other numbers.
        *_when(_JUMP_AT_LEAST, NEWEST + 1, ENOSYS),
    ]
    denied = [*_SYSTEM, *(() if rules.tracing else _TRACING), *(() if rules.metadata else _METADATA)]
    for each in find([*denied, *(() if rules.apart else _SHARED)]):
        code += _when(_JUMP_EQUAL, each, EPERM)
    # Its flags are behind a pointer, which a filter cannot read; on ENOSYS the C library uses clone instead.
    code += _when(_JUMP_EQUAL, number("clone3"), ENOSYS)
    code += _judge(number("fcntl"), [*_load(1), *_when(_JUMP_EQUAL, _F_SETLEASE, EPERM)], ALLOW)
    if not rules.namespaces:
        code += _judge(number("clone"), [*_load(0), *_when(_JUMP_SET, _CLONE_NEW, EPERM)], ALLOW)
    code += _judge_sockets(number, rules.sockets)
    code += _judge_requests(number("ioctl"), apart=rules.apart)
    if not rules.apart:
        for name in _OF_PROCESS:
            code += _judge(number(name), [*_load(0), *_when(_JUMP_EQUAL, 0, ALLOW)], EPERM)
        for name, user in _OF_USER.items():
            whose = [*_load(0), *_when(_JUMP_EQUAL, user, EPERM), *_load(1), *_when(_JUMP_EQUAL, 0, ALLOW)]
            code += _judge(number(name), whose, EPERM)
    code.append(_pack(_RETURN, value=ALLOW))
    return b"".join(code)


def _judge_sockets(number: Callable[[str], int], sockets: Sockets) -> list[bytes]:
    if sockets == "none":
        code = _when(_JUMP_EQUAL, number("socket"), EPERM)
    else:
        families = [family for family in _FAMILIES if sockets == "all" or family != _AF_UNIX]
        allowed = [word for family in families for word in _when(_JUMP_EQUAL, family, ALLOW)]
        code = _judge(number("socket"), [*_load(0), *allowed], NO_FAMILY)
    if sockets == "all":
        return code
    kinds = [word for kind in _TYPES for word in _when(_JUMP_EQUAL, kind, ALLOW)]
    return code + _judge(number("socketpair"), [*_load(1), _pack(_AND, value=_TYPE), *kinds], EPERM)


def _judge_requests(call: int, *, apart: bool) -> list[bytes]:
    """Filter ioctl requests. Without mounts, allow only those that are known to change no file."""
    denied = [word for request in (*_TERMINAL, *_DISK_KEYS) for word in _when(_JUMP_EQUAL, request, EPERM)]
    if apart:
        return _judge(call, [*_load(1), *denied], ALLOW)
    allowed = [word for request in _REQUESTS for word in _when(_JUMP_EQUAL, request, ALLOW)]
    kinds = [word for kind in _KINDS for word in _when(_JUMP_EQUAL, kind, ALLOW)]
    return _judge(call, [*_load(1), *denied, *allowed, _pack(_AND, value=_KIND), *kinds], NO_REQUEST)


def _judge(call: int, body: list[bytes], otherwise: int) -> list[bytes]:
    """Apply `body` to one system call; other calls skip it."""
    return [_pack(_JUMP_EQUAL, 0, len(body) + 1, call), *body, _pack(_RETURN, value=otherwise)]


def _load(argument: int) -> list[bytes]:
    """Load the low half of an argument; the kernel ignores the high half of these."""
    return [_pack(_LOAD, value=_ARGUMENTS_AT + 8 * argument)]


def _when(operation: int, value: int, verdict: int) -> list[bytes]:
    return [_pack(operation, 0, 1, value), _pack(_RETURN, value=verdict)]


def _pack(operation: int, jump_true: int = 0, jump_false: int = 0, value: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, jump_true, jump_false, value)
