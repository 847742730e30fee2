"""Tries everything that a read-only command must not be able to do, and prints what came of each, as JSON.

usage: python3 -I probe.py WORKSPACE HOME TMP HOST_PID HOST_PORT HOST_NAME
The last three are a process of the same user, a TCP port and an abstract socket, all outside; the name is also that of
a message queue, and its end the key of shared memory. It does no harm where it succeeds: it writes what was there
before, takes away what it made, or only opens.
"""

import ctypes
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys

W, H, TMP, HOST_PID, HOST_PORT = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
HOST_NAME = sys.argv[6]
HOST_KEY = int(HOST_NAME[-6:], 16)
A = os.path.join(W, "a.txt")
IS_X86 = os.uname().machine == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)
results = {}


def attempt(name):
    def take(function):
        try:
            found = function()
            results[name] = "ok" if found is None or found else "no"
        except OSError as error:
            results[name] = errno.errorcode.get(error.errno or 0, str(error))
        except subprocess.SubprocessError:
            results[name] = "failed"
        return function

    return take


def check(found):
    if found < 0:
        raise OSError(ctypes.get_errno(), "call")


def write(path, flags=os.O_WRONLY, data=b""):
    handle = os.open(path, flags | os.O_NONBLOCK, 0o644)
    try:
        os.write(handle, data)
    finally:
        os.close(handle)


def make(folder):
    path = os.path.join(folder, f"probe-{HOST_NAME}")
    write(path, os.O_CREAT | os.O_WRONLY, b"x")
    os.unlink(path)


def connect(family, kind, address):
    with socket.socket(family, kind) as made:
        made.settimeout(1)
        made.connect(address)


def read(path):
    with open(path, "rb") as file:
        return bool(file.read(1))


attempt("inherited")(
    lambda: bool(
        [name for name in os.listdir("/proc/self/fd") if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}")]
    )
)
attempt("create")(lambda: write(f"{W}/new", os.O_CREAT | os.O_WRONLY))
attempt("overwrite")(lambda: write(A, data=b"one\n"))
attempt("append")(lambda: write(A, os.O_WRONLY | os.O_APPEND))
attempt("open rdwr")(lambda: write(A, os.O_RDWR))
attempt("truncate")(lambda: os.truncate(A, os.stat(A).st_size))
attempt("o_trunc")(lambda: os.close(os.open(f"{W}/del.txt", os.O_RDONLY | os.O_TRUNC)))
attempt("unlink")(lambda: os.unlink(f"{W}/del.txt"))
attempt("rename")(lambda: os.rename(f"{W}/ren.txt", f"{W}/ren2.txt"))
attempt("mkdir")(lambda: os.mkdir(f"{W}/dir"))
attempt("symlink")(lambda: os.symlink("a.txt", f"{W}/link"))
attempt("hardlink")(lambda: os.link(A, f"{TMP}/hard"))
attempt("mkfifo")(lambda: os.mkfifo(f"{W}/fifo2"))
attempt("chmod")(lambda: os.chmod(A, 0o644))
attempt("chown")(lambda: os.chown(A, -1, os.getgid()))
attempt("utime")(lambda: os.utime(A))
attempt("setxattr")(lambda: os.setxattr(A, "user.x", b"y"))


def set_flags():
    handle = os.open(A, os.O_RDONLY)
    # Those it has: not every file system lets some be changed at any time.
    fcntl.ioctl(handle, 0x40086602, fcntl.ioctl(handle, 0x80086601, bytes(8)))


attempt("setflags")(set_flags)
attempt("fd reopen")(lambda: write(f"/proc/self/fd/{os.open(A, os.O_RDONLY)}"))
attempt("home")(lambda: write(f"{H}/.bashrc", os.O_WRONLY | os.O_APPEND))
attempt("private tmp")(lambda: write(f"{TMP}/x", os.O_CREAT | os.O_WRONLY, b"x"))
attempt("shm")(lambda: make("/dev/shm"))
attempt("var tmp")(lambda: make("/var/tmp"))
attempt("dev")(lambda: make("/dev"))
attempt("run")(lambda: make("/run"))
attempt("rmdir")(lambda: os.rmdir(f"{W}/.git/branches"))
attempt("git commit")(lambda: subprocess.run(["git", "-C", W, "commit", "--allow-empty", "-qm", "x"], check=True))
attempt("hook")(lambda: write(f"{W}/.git/hooks/pre-commit", os.O_CREAT | os.O_WRONLY))
attempt("ssh key")(lambda: read(f"{H}/.ssh/id"))
attempt("ssh list")(lambda: bool(os.listdir(f"{H}/.ssh")))


def read_environments():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if b"CANARY" in file.read():
                        return True
            except OSError:
                pass
    return False


attempt("environ")(read_environments)
attempt("own environ")(lambda: "CANARY_KEY" in os.environ)
attempt("tcp")(lambda: connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", HOST_PORT)))
attempt("udp")(lambda: connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 9)))
attempt("unix")(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, f"{W}/sock"))
attempt("abstract")(lambda: connect(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{HOST_NAME}"))
attempt("netlink")(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close())
attempt("raw")(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
attempt("packet")(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW).close())
attempt("listen")(lambda: socket.create_server(("127.0.0.1", 0)).close())
attempt("socketpair")(lambda: [end.close() for end in socket.socketpair()] and None)
attempt("signal")(lambda: os.kill(HOST_PID, 0))
attempt("ptrace")(lambda: check(libc.ptrace(0x4206, HOST_PID, 0, 0)))


def be_traced():
    pid = os.fork()
    if pid == 0:
        os._exit(libc.ptrace(0, 0, 0, 0) != 0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


attempt("be traced")(be_traced)
attempt("memory")(lambda: os.close(os.open(f"/proc/{HOST_PID}/mem", os.O_RDWR)))
attempt("remount")(lambda: check(libc.mount(b"none", b"/", None, 0x1020, None)))


def clone_namespace():
    number = 56 if os.uname().machine == "x86_64" else 220
    pid = libc.syscall(number, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    check(pid)


attempt("clone namespace")(clone_namespace)
attempt("user namespace")(lambda: check(libc.unshare(0x10000000 | 0x20000)))
attempt("chroot")(lambda: os.chroot("/"))
attempt("setns")(lambda: check(libc.setns(os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)))
attempt("io_uring")(lambda: check(libc.syscall(425, 1, ctypes.create_string_buffer(256))))
attempt("bpf")(
    lambda: check(
        libc.syscall(321 if os.uname().machine == "x86_64" else 280, 0, ctypes.create_string_buffer(128), 128)
    )
)
attempt("keyctl")(lambda: check(libc.syscall(250 if os.uname().machine == "x86_64" else 219, 0, -3, 1)))
attempt("core pattern")(lambda: os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)))
attempt("sysrq")(lambda: os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY)))
attempt("sys")(lambda: os.close(os.open("/sys/kernel/mm/transparent_hugepage/enabled", os.O_WRONLY)))
attempt("disk")(
    lambda: bool(
        [
            name
            for name in os.listdir("/dev")
            if name.startswith(("sd", "vd", "mem", "kmem")) and os.open(f"/dev/{name}", os.O_RDONLY)
        ]
    )
)
attempt("tiocsti")(lambda: fcntl.ioctl(os.openpty()[1], 0x5412, b"x"))
attempt("by handle")(
    lambda: check(libc.open_by_handle_at(os.open(W, os.O_RDONLY), ctypes.create_string_buffer(128), 0))
)


def call(x86_64, aarch64, *arguments):
    check(libc.syscall(x86_64 if IS_X86 else aarch64, *arguments))


def ask(request, size, *, get=0):
    """What a file is told by a request: what it says of itself, where that can be asked."""
    with open(A, "rb") as file:
        said = fcntl.ioctl(file, get, bytes(size)) if get else bytes(size)
        code = ctypes.create_string_buffer(said, size)
        call(16, 29, file.fileno(), ctypes.c_ulong(request), code)


def send(kind):
    """An end of a pair is a socket like others."""
    with socket.socketpair(socket.AF_UNIX, kind)[0] as end:
        end.sendto(b"x", f"{W}/letters")


def lease():
    with open(A, "rb") as file:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def read_nice():
    return os.getpriority(os.PRIO_PROCESS, HOST_PID)


def open_queue():
    handle = libc.mq_open(f"/{HOST_NAME}".encode(), os.O_RDWR)
    check(handle)
    os.close(handle)


attempt("limits of others")(
    lambda: resource.prlimit(HOST_PID, resource.RLIMIT_CORE, resource.prlimit(HOST_PID, resource.RLIMIT_CORE)) and None
)
attempt("limits, odd number")(
    lambda: call(302, 261, ctypes.c_ulong(HOST_PID | 1 << 32), 4, struct.pack("QQ", 0, 0), None)
)
attempt("processors of others")(lambda: os.sched_setaffinity(HOST_PID, os.sched_getaffinity(HOST_PID)))
attempt("policy of others")(lambda: os.sched_setscheduler(HOST_PID, os.SCHED_OTHER, os.sched_param(0)))
attempt("parameters of others")(lambda: os.sched_setparam(HOST_PID, os.sched_param(0)))
attempt("attributes of others")(
    lambda: call(314, 274, HOST_PID, struct.pack("IIQiIQQQ", 48, 0, 0, read_nice(), 0, 0, 0, 0), 0)
)
attempt("nice of others")(lambda: os.setpriority(os.PRIO_PROCESS, HOST_PID, read_nice()))
attempt("disk priority of others")(lambda: call(251, 30, 1, HOST_PID, 0))
attempt("compare")(lambda: check(libc.syscall(312 if IS_X86 else 272, os.getpid(), HOST_PID, 1, 0, 0)))
attempt("pidfd signal")(lambda: signal.pidfd_send_signal(os.pidfd_open(HOST_PID), 0))
attempt("shared memory")(lambda: check(libc.shmget(HOST_KEY, 0, 0)))
attempt("semaphores")(lambda: check(libc.semget(HOST_KEY, 0, 0)))
attempt("messages")(lambda: check(libc.msgget(HOST_KEY, 0)))
attempt("posix queue")(open_queue)
attempt("setflags, odd number")(lambda: ask(0x40086602 | 1 << 32, 8, get=0x80086601))
attempt("project flags")(lambda: ask(0x401C5820, 28, get=0x801C581F))
attempt("version")(lambda: ask(0x40087602, 8, get=0x80087601))
attempt("older version")(lambda: ask(0x40086604, 8, get=0x80087601))
attempt("lease")(lease)
attempt("letter")(lambda: send(socket.SOCK_DGRAM))
attempt("raw letter")(lambda: send(socket.SOCK_RAW))
attempt("command line")(lambda: read(f"/proc/{HOST_PID}/cmdline"))
attempt("tty")(lambda: os.close(os.open("/dev/tty", os.O_RDWR)))
print(json.dumps(results))
