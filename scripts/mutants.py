"""Changes the code in one small place at a time and sees whether a test fails: `make mutants`.

The changes are a sample, always the same for the same code, spread over the files of `PLACES`. Each is made in a copy
of the project below .cache/mutants and judged by the tests that execute the changed line, the quickest first; which
ones do is recorded before, and again for files that have changed. A change that the quick tests do not notice is judged
by the slower ones, too. A test outside of tests/unit must fail twice: it uses programs and timers, and may fail by
chance. What tests cannot notice is listed with its reason in tests/data/mutants.toml. Exit status 1 when fewer than 95
of 100 are noticed, or more than 5 of 100 are excused.
"""

import argparse
import ast
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from difflib import SequenceMatcher
from functools import reduce
from itertools import islice
from operator import or_
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mutants"
RECORDING = CACHE / "recording.json"
EXCUSES = ROOT / "tests" / "data" / "mutants.toml"
PLACES = ("engine", "sessions", "sandbox", "tools/policy.py")
TESTS = ("tests/unit/**/test_*.py", "tests/surfaces/test_*.py", "tests/flows/test_*.py", "tests/frontends/test_*.py")
# Tests of other parts, which run the changed code as a matter of course and say nothing about it.
OTHERS = {
    "tests/unit": "cli core definitions features/mcp models testing tools/lsp ui",
    "tests/flows": "activity attack_names attack_searches bash certificates convert definitions extensions hooks lsp "
    "mcp odd_servers offline pi_settings provider read_results result_order reviewers schedule servers settings "
    "shared tool_faults web wire workspaces worktree",
    "tests/frontends": "agent_labels attack_cmdline attack_context attack_forecast attack_hook attack_late "
    "attack_listening attack_selectors attack_servers attack_terminal bad_input builtin changed export golden hooks "
    "live_line lsp mcp model_lists null_fields provider rpc_storm skills streaming toolkit trust_hooks web why worker",
}
GOAL, MOST_EXCUSED = 0.95, 0.05
# How long a test and all tests of a change may take when they are quick, and when those noticed nothing.
LOOKS = ((4.0, 15.0), (60.0, 120.0))
FILES_AT_ONCE = 8
IMPORT_FAILED = ("ERROR collecting", "ImportError while loading conftest")
"""Outputs of pytest when the changed code cannot be imported."""
# It runs without site-packages, where nothing is recorded: what starts it is.
STARTED_BY = {"src/retinue/sandbox/forkserver.py": "src/retinue/sandbox/server.py"}

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "//",
    ast.FloorDiv: "*",
    ast.Div: "*",
    ast.Mod: "*",
    ast.BitAnd: "|",
    ast.BitOr: "&",
}
# Types, decorators and the flags of a class say nothing about behaviour; in an f-string Python 3.11 tells no positions.
UNTOUCHED = {"annotation", "returns", "decorator_list", "bases", "keywords_of_class", "pattern", "type_params"}


class Mutant(NamedTuple):
    """One change."""

    path: str
    line: int
    span: tuple[int, int]
    """Where in the file, in bytes."""
    new: str
    code: str
    """The line as it was."""
    change: str
    lines: tuple[int, ...]
    """Those whose tests judge it."""
    is_inside: bool
    """Whether it is in a function; the rest runs with the import, which is of no test."""
    where: str
    """The class and function, such as `Journal.flush`; empty at the top of a file."""

    @property
    def key(self) -> str:
        return f"{self.path}\t{self.where}\t{self.code}\t{self.change}"

    def apply(self, source: bytes) -> bytes:
        """The file with the change."""
        return source[: self.span[0]] + self.new.encode() + source[self.span[1] :]

    @property
    def title(self) -> str:
        return f"{self.path}:{self.line}: {self.code}: {self.change}"


class Finder:
    """All changes that can be made in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path.relative_to(ROOT).as_posix()
        self._source = path.read_bytes()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._tree = ast.parse(self._source)
        self._names: list[str] = []
        self._uses: dict[str, list[int]] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self._uses.setdefault(node.id, []).append(node.lineno)

    def find(self) -> Iterator[Mutant]:
        for statement in self._tree.body:
            yield from self._walk(statement, statement, is_inside=False)

    def _walk(self, node: ast.AST, statement: ast.stmt, *, is_inside: bool) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            statement = node
        if isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            return
        for target, new, change in self._change(node, is_inside=is_inside):
            yield self._make(target, new, change, statement, is_inside=is_inside)
        is_inside = is_inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        is_named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        self._names += [node.name] if is_named else []
        for name, value in ast.iter_fields(node):
            if name in UNTOUCHED or (isinstance(node, ast.ClassDef) and name != "body"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self._walk(child, statement, is_inside=is_inside)
        del self._names[len(self._names) - is_named :]

    def _change(self, node: ast.AST, *, is_inside: bool) -> Iterator[tuple[ast.AST, str, str]]:
        """What to write instead of which part, and what that changes."""
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                for new in COMPARISONS[type(op)]:
                    yield node, f"({self._text(left)} {new} {self._text(right)})", f"{_name(op)} becomes {new}"
            case ast.BoolOp(op=op, values=values):
                new = " and " if isinstance(op, ast.Or) else " or "
                yield node, f"({new.join(f'({self._text(value)})' for value in values)})", f"becomes{new}".rstrip()
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield node, f"({self._text(operand)})", "not removed"
            case ast.BinOp(left=left, op=op, right=right) if is_inside and type(op) in ARITHMETIC:
                new = ARITHMETIC[type(op)]
                yield node, f"(({self._text(left)}) {new} ({self._text(right)}))", f"{_name(op)} becomes {new}"
            case ast.Constant(value=bool(value)):
                yield node, str(not value), f"{value} becomes {not value}"
            case ast.Constant(value=int(value)):
                yield node, str(value + 1), f"{value} becomes {value + 1}"
                yield node, f"({value - 1})", f"{value} becomes {value - 1}"
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Constant):
                yield test, f"(not ({self._text(test)}))", "condition negated"
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield value, "None", "returns None"
            case (
                ast.Expr(value=ast.Call() | ast.Await()) | ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break()
            ):
                yield node, "pass", "statement removed"
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) if is_inside:
                yield node, "pass", "statement removed"

    def _make(self, node: Any, new: str, change: str, statement: ast.stmt, *, is_inside: bool) -> Mutant:
        code = self._source.splitlines()[node.lineno - 1].decode().strip()
        lines = set(range(node.lineno, node.end_lineno + 1)) | {statement.lineno}
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            lines |= {each.lineno for each in statement.body}  # a default is about what the function does
        if not is_inside:
            # It runs with the import; what it is about are the places that use it.
            names = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
            lines = {line for name in names for line in self._uses.get(name, ())} - lines
        span, where = self._span(node), ".".join(self._names)
        return Mutant(self._path, node.lineno, span, new, code, change, tuple(sorted(lines)), is_inside, where)

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return f"({self._source[start:end].decode()})"

    def _span(self, node: Any) -> tuple[int, int]:
        first, last = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return first + node.col_offset, last + node.end_col_offset


def _name(node: ast.AST) -> str:
    return type(node).__name__.lower()


def list_sources() -> list[Path]:
    """The files that are changed."""
    places = [ROOT / "src" / "retinue" / place for place in PLACES]
    return sorted(path for place in places for path in ([place] if place.is_file() else place.rglob("*.py")))


def choose_mutants(count: int, seed: int) -> list[Mutant]:
    """A sample: of a file with many places more than of one with few, of each some."""
    found = {path: list(Finder(path).find()) for path in list_sources()}
    weights = {path: math.sqrt(len(mutants)) for path, mutants in found.items()}
    chosen: list[Mutant] = []
    for path, mutants in found.items():
        share = math.ceil(count * weights[path] / sum(weights.values()))
        # A file that gets another name keeps its sample.
        names = {mutant: f"{seed}\t{mutant.code}\t{mutant.change}" for mutant in mutants}
        order = sorted(mutants, key=lambda mutant: hashlib.sha256(names[mutant].encode()).digest())
        before = path.read_bytes()
        code = compile(before, path, "exec")
        # `1 | 4` and `1 | 5` are the same program.
        real = (mutant for mutant in order if compile(mutant.apply(before), path, "exec") != code)
        chosen += islice(real, share)
    return sorted(chosen, key=lambda mutant: hashlib.sha256(mutant.key.encode()).digest())


def list_tests() -> list[str]:
    """The files whose tests may judge a change."""
    words = [(folder, word) for folder, words in OTHERS.items() for word in words.split()]
    others = tuple(f"{folder}/{word}/" if folder == "tests/unit" else f"{folder}/test_{word}" for folder, word in words)
    names = {path.relative_to(ROOT).as_posix() for pattern in TESTS for path in ROOT.glob(pattern)}
    return sorted(name for name in names if not name.startswith(others))


class Copy:
    """A copy of the project with an environment of its own, in which files may be changed."""

    def __init__(self, number: int) -> None:
        self.root = CACHE / f"copy-{number}"
        self.python = self.root / ".venv" / "bin" / "python"

    def prepare(self) -> None:
        """Bring the copy up to date; what has not changed keeps its compiled form."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, stdout=-1, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            source, target = ROOT / name, self.root / name
            if source.is_symlink() or not source.is_file():
                continue
            if not target.exists() or target.stat().st_mtime_ns != source.stat().st_mtime_ns:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.python.parents[1]], check=True)
            self._link_programs()
        packages = next((self.root / ".venv" / "lib").glob("python*/site-packages"))
        shutil.copy2(ROOT / "scripts" / "linetrace.py", packages)
        real = next((ROOT / ".venv" / "lib").glob("python*/site-packages"))
        first = [str(self.root / "src"), f"import site; site.addsitedir({str(real)!r})"]
        (packages / "copy.pth").write_text("\n".join([*first, "import linetrace; linetrace.start()", ""]))

    def _link_programs(self) -> None:
        for program in (ROOT / ".venv" / "bin").iterdir():
            target = self.python.with_name(program.name)
            if target.exists() or program.is_symlink():
                continue
            data = program.read_bytes()
            if data.startswith(b"#!"):
                target.write_bytes(data.replace(str(ROOT / ".venv").encode(), str(self.root / ".venv").encode()))
                target.chmod(0o755)
            else:
                target.symlink_to(program)

    def run_tests(self, arguments: list[str], timeout_s: float, **environment: str) -> int | None:
        """The exit status of pytest, None when it took too long.

        A changed line may kill or remove anything: it sees no process of others, and may write in the copy only.
        """
        root = str(self.root)
        cage = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            "unshare",
            *(["--map-root-user"] if os.geteuid() else []),
            "--pid",
            "--fork",
            "--mount-proc",
        ]
        cage += [
            "--kill-child",
            "bwrap",
            "--ro-bind",
            "/",
            "/",
            "--dev-bind",
            "/dev",
            "/dev",
            "--bind",
            "/proc",
            "/proc",
        ]
        cage += [
            "--tmpfs",
            "/tmp",
            "--tmpfs",
            "/var/tmp",
            "--bind",
            root,
            root,
            "--cap-add",
            "ALL",
            "--die-with-parent",
            "--",
        ]
        flags = ["-q", "-p", "no:cacheprovider"]
        ours = {"RERUNS": "0", "HYPOTHESIS_STORAGE_DIRECTORY": str(self.root / ".hypothesis"), **environment}
        with open(self.root / "output", "wb") as output:
            argv = [*cage, self.python, "-m", "pytest", *flags, *arguments]
            process = subprocess.Popen(argv, cwd=root, env={**os.environ, **ours}, stdout=output, stderr=output)
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            process.kill()
            process.wait()

    def record(self, files: list[str]) -> dict[str, dict[str, Any]]:
        """For each test that passes: how long it took and which lines it executed, a bit for each."""
        place = self.root / "trace"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        place.chmod(0o777)  # some tests go on as another user
        try:
            chosen = ["-m", "not slow and not interop", "-p", "linetrace", "--timeout", "120"]
            self.run_tests([*chosen, *files], 3600, PYTHONDONTWRITEBYTECODE="")
            told = json.loads((place / "tests.json").read_text())
            found: dict[str, dict[str, Any]] = {
                test: {"seconds": seconds, "lines": {}} for test, is_good, seconds in told if is_good
            }
            for path in place.glob("*.lines"):
                for row in path.read_text(encoding="utf-8").splitlines():
                    number, source, line = row.split("\t")
                    if number.isdigit() and (entry := found.get(told[int(number)][0])) is not None:
                        entry["lines"][source] = entry["lines"].get(source, 0) | 1 << int(line)
            for entry in found.values():
                entry["lines"] = {source: f"{lines:x}" for source, lines in entry["lines"].items()}
            return found
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def judge(self, mutant: Mutant, looks: list[tuple[list[str], float]]) -> str:
        """`killed`, `timeout` or `survived`."""
        target = self.root / mutant.path
        before, data = target.stat(), target.read_bytes()
        target.write_bytes(mutant.apply(data))
        # Another time than the one its compiled form was made of.
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns + 10**12))
        try:
            results = (self._look(mutant, tests, expected_s) for tests, expected_s in looks)
            return next((result for result in results if result != "survived"), "survived")
        finally:
            target.write_bytes(data)
            os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))

    def _look(self, mutant: Mutant, tests: list[str], expected_s: float) -> str:
        listed = self.root / "chosen"
        while tests:
            listed.write_text("\n".join(tests), encoding="utf-8")
            limits = ["-x", "--timeout", f"{30 + expected_s:.0f}"]
            status = self.run_tests([*limits, f"@{listed}"], 30 + 5 * expected_s, PYTHONDONTWRITEBYTECODE="1")
            if status in (4, 5):
                output = self.root / "output"
                if any(text in output.read_text(errors="replace") for text in IMPORT_FAILED):
                    return "killed"
                raise RuntimeError(f"the tests of {mutant.path}:{mutant.line} were not found: {output}")
            if not status:
                return "timeout" if status is None else "survived"
            failed = self._find_failed(tests)
            if failed is None or failed.startswith("tests/unit/"):
                return "killed"
            listed.write_text(failed, encoding="utf-8")
            if self.run_tests([*limits, f"@{listed}"], 30 + 5 * expected_s, PYTHONDONTWRITEBYTECODE="1") != 0:
                return "killed"
            tests = tests[tests.index(failed) + 1 :]
        return "survived"

    def _find_failed(self, tests: list[str]) -> str | None:
        rows = (self.root / "output").read_text(encoding="utf-8", errors="replace").splitlines()
        told = [row.partition(" ")[2] for row in rows if row.startswith(("FAILED ", "ERROR "))]
        found = (test for test in tests for row in told if row == test or row.startswith(f"{test} - "))
        return next(found, None)


def digest(paths: list[Path]) -> str:
    """What files hold, in short."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def open_copies(jobs: int) -> Queue[Copy]:
    """Copies of the project as it is now, one for each job."""
    copies: Queue[Copy] = Queue()
    for number in range(jobs):
        copy = Copy(number)
        copy.prepare()
        copies.put(copy)
    return copies


def read_recording() -> dict[str, Any]:
    """What was recorded last: for each test file its tests and their lines, as those are numbered now.

    Where the code has changed since, tests count for the lines in place of those they executed. So a change may be
    judged by too few tests, never by a test that would not notice it; `--again` records everything anew.
    """
    known: dict[str, Any] = json.loads(RECORDING.read_text()) if RECORDING.exists() else {}
    entries = [entry for item in known.get("files", {}).values() for entry in item["tests"].values()]
    for name, before in known.get("sources", {}).items():
        path = ROOT / name
        if not path.exists() or (text := path.read_text(encoding="utf-8")) == before:
            continue
        moves: dict[int, int] = {}
        matcher = SequenceMatcher(None, before.splitlines(), text.splitlines(), autojunk=False)
        for kind, first, last, start, end in matcher.get_opcodes():
            for line in range(first, last):
                same = [start + line - first] if kind == "equal" else range(start, end)
                moves[line + 1] = sum(1 << each + 1 for each in same)
        for entry in entries:
            if name in entry["lines"]:
                mask = int(entry["lines"][name], 16)
                moved = [moves.get(line, 0) for line in range(mask.bit_length()) if mask >> line & 1]
                entry["lines"][name] = f"{reduce(or_, moved, 0):x}"
    return known.get("files", {})


def load_recording(jobs: int, *, again: bool = False) -> dict[str, dict[str, Any]]:
    """Which tests execute which lines; only test files that have changed since the last time are run again."""
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in list_sources()}
    files = {} if again else read_recording()
    now = {name: digest([ROOT / name]) for name in list_tests()}
    files = {name: entry for name, entry in files.items() if now.get(name) == entry["digest"]}
    missing = sorted(set(now) - set(files))
    if missing:
        print(f"recording {len(missing)} test files", flush=True)
        copies = open_copies(jobs)

        def record(names: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
            copy = copies.get()
            try:
                return names, copy.record(names)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            parts = [missing[first : first + FILES_AT_ONCE] for first in range(0, len(missing), FILES_AT_ONCE)]
            for done in as_completed([pool.submit(record, part) for part in parts]):
                names, found = done.result()
                files |= {name: {"digest": now[name], "tests": {}} for name in names}
                for test, entry in found.items():
                    files[test.partition("::")[0]]["tests"][test] = entry
                RECORDING.write_text(json.dumps({"sources": sources, "files": files}))
    return {test: entry for item in files.values() for test, entry in item["tests"].items()}


def choose_tests(mutant: Mutant, recording: dict[str, dict[str, Any]]) -> list[tuple[list[str], float]]:
    """Those that execute the line, for each look at it.

    First the unit tests of its package, then the quickest case of each other test, then their other cases.
    """
    path = STARTED_BY.get(mutant.path, mutant.path)
    folder, _, name = mutant.path.removeprefix("src/retinue/").rpartition("/")
    units, everything = f"tests/unit/{folder}/test_", -1
    wanted = (sum(1 << line for line in mutant.lines) if path == mutant.path else 0) or everything
    hits = [
        (entry["seconds"], test)
        for test, entry in recording.items()
        if int(entry["lines"].get(path, "0"), 16) & wanted
        # A constant runs with the import, and other files may use it.
        or (not mutant.is_inside and test.startswith(units) and (path in entry["lines"] or f"/test_{name}::" in test))
    ]
    ranks: Counter[str] = Counter()
    order: list[tuple[int, float, str]] = []
    for seconds, test in sorted(hits):
        rank = ranks[test.partition("[")[0]]
        ranks[test.partition("[")[0]] += 1
        order.append((-1 if test.startswith(units) else rank, seconds, test))
    order.sort()
    looks: list[tuple[list[str], float]] = []
    for longest_s, most_s in LOOKS:
        chosen, total_s = [], 0.0
        for row in list(order):
            if row[1] > longest_s or (chosen and total_s + row[1] > most_s):
                continue
            order.remove(row)
            chosen.append(row[2])
            total_s += row[1] + 0.01
        looks.append((chosen, total_s))
    return looks


def load_excuses() -> dict[str, str]:
    """Why no test can notice a change, by its key."""
    table = tomllib.loads(EXCUSES.read_text(encoding="utf-8")) if EXCUSES.exists() else {}
    names = ("path", "where", "code", "change")
    return {"\t".join(item[name] for name in names): item["reason"] for item in table.get("mutant", ())}


def judge_all(mutants: list[Mutant], recording: dict[str, dict[str, Any]], jobs: int) -> Iterator[tuple[Mutant, str]]:
    """What became of each, as soon as it is known."""
    copies = open_copies(jobs)

    def judge(mutant: Mutant) -> tuple[Mutant, str]:
        looks = choose_tests(mutant, recording)
        if not any(tests for tests, _ in looks):
            return mutant, "no test"
        copy = copies.get()
        try:
            return mutant, copy.judge(mutant, looks)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        for future in as_completed([pool.submit(judge, mutant) for mutant in mutants]):
            yield future.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=320, help="how many changes")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    parser.add_argument("--only", nargs="+", default=[""], help="only those whose file, line or change has this in it")
    parser.add_argument("--again", action="store_true", help="record anew which tests execute which lines")
    parser.add_argument("--list", action="store_true", help="only tell which ones")
    options = parser.parse_args()
    excuses = load_excuses()
    chosen = choose_mutants(options.count, options.seed)
    chosen = [mutant for mutant in chosen if any(part in mutant.title for part in options.only)]
    if options.list:
        print("\n".join(mutant.title for mutant in chosen))
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    recording = load_recording(options.jobs, again=options.again)
    results: dict[Mutant, str] = {}
    for mutant, result in judge_all(
        [mutant for mutant in chosen if mutant.key not in excuses], recording, options.jobs
    ):
        results[mutant] = result
        print(f"{len(results):>4} {result:<8} {mutant.title}", flush=True)
    missed = [mutant for mutant in chosen if results.get(mutant) in ("survived", "no test")]
    print()
    for path in sorted({mutant.path for mutant in results}):
        own = [mutant for mutant in results if mutant.path == path]
        print(f"{sum(mutant not in missed for mutant in own):>4} of {len(own):>3}  {path}")
    print()
    for mutant in missed:
        print(f"{results[mutant]}: {mutant.title}")
    for mutant in (mutant for mutant in chosen if mutant.key in excuses):
        print(f"excused: {mutant.title}: {excuses[mutant.key]}")
    share, excused = 1 - len(missed) / max(len(results), 1), len(chosen) - len(results)
    timeouts = list(results.values()).count("timeout")
    print(
        f"{len(results)} changes, {len(results) - len(missed)} noticed ({share:.1%}; {timeouts} by a timeout), "
        f"{excused} excused, {(time.monotonic() - begin) / 60:.0f} minutes"
    )
    return 0 if share >= GOAL and (options.only != [""] or excused <= MOST_EXCUSED * len(chosen)) else 1


if __name__ == "__main__":
    sys.exit(main())
