"""The process that reads one document: limits itself, then reads the file or executes the converter.

`python -I -S child.py ROOT PACKAGES FILE MEMORY CPU_S [COMMAND]` prints markdown, or prints the reason in one line and
exits with one of the codes below. It can import only the standard library, our readers and the given packages, because
a hostile document may take control of it.
"""

import os
import sys
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder

UNREADABLE, NO_MEMORY, UNSUPPORTED = 3, 4, 5
_MAX_FILE = 64 * 1024 * 1024


def main(arguments: list[str]) -> int:
    root, packages, path, memory, cpu_s, *command = arguments
    bound(int(memory), int(cpu_s))
    sys.path.insert(0, root)
    sys.meta_path.append(PackageFinder(packages))
    from retinue.tools.convert.readers.base import Unreadable, Unsupported
    from retinue.tools.convert.readers.registry import is_packed, read_document
    from retinue.tools.convert.readers.zipped import Package

    try:
        with open(path, "rb") as file:
            data = file.read()
        if command:
            if is_packed(data):
                Package(data)
            run_command(command[0], path)
        text = read_document(data, os.path.basename(path))
        sys.stdout.buffer.write(text.encode("utf-8", "replace"))
        sys.stdout.flush()
    except Unreadable as error:
        return fail(str(error), UNREADABLE)
    except Unsupported as error:
        return fail(str(error), UNSUPPORTED)
    except RecursionError:
        return fail("the document is damaged (too deep)", UNREADABLE)
    except MemoryError:
        os.write(2, b"the document needs too much memory")
        return NO_MEMORY
    return 0


class PackageFinder(MetaPathFinder):
    """Finds the given packages, and nothing else that is installed beside them."""

    def __init__(self, folders: str) -> None:
        """`folders` are the folders of the packages, separated like PATH."""
        self._parents = {os.path.basename(each): os.path.dirname(each) for each in folders.split(os.pathsep)}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        parent = self._parents.get(fullname)
        return PathFinder.find_spec(fullname, [parent]) if parent else None


def bound(memory: int, cpu_s: int) -> None:
    """Limit memory, CPU time and file size of this process and of what it executes."""
    try:
        import resource
    except ImportError:
        return
    limits = {"RLIMIT_AS": memory, "RLIMIT_CPU": cpu_s, "RLIMIT_FSIZE": _MAX_FILE, "RLIMIT_CORE": 0}
    for name, limit in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            _, hard = resource.getrlimit(kind)
            most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            # A system that does not support a limit refuses it; the others still apply.
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (most, most + 2 if name == "RLIMIT_CPU" and hard < 0 else most))


def run_command(command: str, path: str) -> None:
    """Execute the converter with few threads, because each takes a share of the memory."""
    few = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    os.execve(command, [command, path], {**os.environ, **few, "PYTHONIOENCODING": "utf-8"})


def fail(text: str, code: int) -> int:
    os.write(2, text[:1000].encode("utf-8", "replace"))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
