import time

import pytest

from retinue.core.errors import ToolRetry
from retinue.tools.files.globs import Glob


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a/b.pyc", False),
        ("*.{ts,tsx}", "a/b.tsx", True),
        ("{a,b{c,d}}.x", "bd.x", True),
        ("readme.md", "docs/README.md", True),
        ("README.md", "docs/readme.md", False),
        ("src/**/*.py", "src/a/b/c.py", True),
        ("src/**/*.py", "src/c.py", True),
        ("src/**/*.py", "lib/src/c.py", True),
        ("src/**/*.py", "mysrc/c.py", False),
        ("src/*.py", "src/a/c.py", False),
        ("**/test_*", "test_a", True),
        ("**", "any/where", True),
        ("/abs/*.py", "/abs/a.py", True),
        ("/abs/*.py", "/x/abs/a.py", False),
        ("[!a]?.c", "bx.c", True),
        ("[^a]?.c", "ax.c", False),
        (r"\[id\].tsx", "[id].tsx", True),
        ("./src/a.py", "src/a.py", True),
        ("{src,lib}/*.py", "lib/a.py", True),
    ],
)
def test_pattern_decides(pattern: str, path: str, matches: bool) -> None:
    assert Glob(pattern).matches(path) is matches


@pytest.mark.parametrize("pattern", ["[a", "a{b", "a}b", "x" * 1001, "a\0", "{a,b}" * 10])
def test_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ToolRetry, match=r"^The glob '"):
        Glob(pattern)


@pytest.mark.attack("D12")
@pytest.mark.parametrize("pattern", ["*a" * 50 + "b", "**/" * 50 + "b", "*/**/" * 30 + "b"])
def test_no_pattern_is_slow(pattern: str) -> None:
    glob = Glob(pattern)
    began = time.process_time()
    assert glob.matches("a" * 255 + "/" + "/".join("a" * 100)) is False
    assert time.process_time() - began < 0.5
