"""System call filters as bytes, for each architecture we know. Pure: who loads them is not known here.

A denied call answers EPERM, so that programs go on without it; a call of a foreign architecture kills.
"""

import os
import struct
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

Sockets: TypeAlias = Literal["none", "internet", "all"]

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000
NO_FAMILY = 0x00050061
"""As a kernel answers that has no such sockets."""

# Name → number on x86_64 and on aarch64; None where it does not exist.
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
}
_TRACING = ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd")
_SYSTEM = (
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("mount", "umount2", "move_mount", "open_tree", "open_tree_attr", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "pivot_root", "chroot", "unshare", "setns", "bpf", "perf_event_open"),
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module"),
    *("add_key", "request_key", "keyctl", "userfaultfd", "open_by_handle_at"),
    *("swapon", "swapoff", "reboot", "acct", "quotactl", "quotactl_fd"),
)
_METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "removexattr", "lremovexattr", "fremovexattr"),
    *("removexattrat", "file_setattr"),
)
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FS_IOC_SETFLAGS, _FS_IOC32_SETFLAGS, _FS_IOC_FSSETXATTR = 0x40086602, 0x40046602, 0x401C5820
# NEWTIME NEWNS NEWCGROUP NEWUTS NEWIPC NEWUSER NEWPID NEWNET
_CLONE_NEW = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_X32 = 0x40000000
_AF_UNIX = 1
# UNIX, INET, INET6, NETLINK. Others reach the machine that this one is a guest of, or rarely used parts of the kernel.
_FAMILIES = (_AF_UNIX, 2, 10, 16)
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _SECOND_ARGUMENT_AT = 0, 4, 16, 24


class Filter(Struct, frozen=True):
    """What is denied."""

    sockets: Sockets = "none"
    """Families of sockets that may be made, `all` of the usual ones; `socketpair` always works."""
    tracing: bool = False
    """Processes may look into each other."""
    metadata: bool = True
    """Modes, owners, times and attributes of files may be changed."""
    namespaces: bool = True
    """New processes may ask for namespaces of their own: something else forbids them."""


def find_architecture() -> str:
    """The one this process runs on, when there is a filter for it; else nothing."""
    machine = os.uname().machine
    # A 32-bit program on a 64-bit kernel would need the other table.
    return machine if machine in ARCHITECTURES and struct.calcsize("P") == 8 else ""


@lru_cache(maxsize=16)
def build_filter(architecture: str, rules: Filter) -> bytes:
    """The program. Raises KeyError for an architecture that is not in the table."""
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
    ]
    if architecture == "x86_64":
        # The x32 calls reach the same functions under other numbers.
        code += [_pack(_JUMP_AT_LEAST, 0, 1, _X32), _pack(_RETURN, value=EPERM)]
    denied = [*_SYSTEM, *(() if rules.tracing else _TRACING), *(() if rules.metadata else _METADATA)]
    for each in find(denied):
        code += [_pack(_JUMP_EQUAL, 0, 1, each), _pack(_RETURN, value=EPERM)]
    if rules.sockets == "none":
        code += [_pack(_JUMP_EQUAL, 0, 1, number("socket")), _pack(_RETURN, value=EPERM)]
    else:
        families = [family for family in _FAMILIES if rules.sockets == "all" or family != _AF_UNIX]
        allowed = [(_JUMP_EQUAL, family, ALLOW) for family in families]
        code += _judge_argument(number("socket"), _FIRST_ARGUMENT_AT, allowed, NO_FAMILY)
    if not rules.namespaces:
        code += _judge_argument(number("clone"), _FIRST_ARGUMENT_AT, [(_JUMP_SET, _CLONE_NEW, EPERM)], ALLOW)
        # Its flags are behind a pointer; who gets this answer tries clone instead.
        code += [_pack(_JUMP_EQUAL, 0, 1, number("clone3")), _pack(_RETURN, value=ENOSYS)]
    requests = [_TIOCSTI, _TIOCLINUX]
    if not rules.metadata:
        requests += [_FS_IOC_SETFLAGS, _FS_IOC32_SETFLAGS, _FS_IOC_FSSETXATTR]
    checks = [(_JUMP_EQUAL, request, EPERM) for request in requests]
    code += _judge_argument(number("ioctl"), _SECOND_ARGUMENT_AT, checks, ALLOW)
    code.append(_pack(_RETURN, value=ALLOW))
    return b"".join(code)


def _judge_argument(call: int, offset: int, checks: list[tuple[int, int, int]], otherwise: int) -> list[bytes]:
    """For one call, the low half of an argument decides; all others pass by."""
    body = [_pack(_LOAD, value=offset)]
    for operation, value, verdict in checks:
        body += [_pack(operation, 0, 1, value), _pack(_RETURN, value=verdict)]
    body.append(_pack(_RETURN, value=otherwise))
    return [_pack(_JUMP_EQUAL, 0, len(body), call), *body]


def _pack(operation: int, jump_true: int = 0, jump_false: int = 0, value: int = 0) -> bytes:
    return struct.pack("=HBBI", operation, jump_true, jump_false, value)
