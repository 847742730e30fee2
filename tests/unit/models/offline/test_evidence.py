from retinue.core.messages import ToolCall
from retinue.models.offline.evidence import Excerpt, Hit, collect_findings, parse_matches
from retinue.models.offline.languages import OUTLINE
from retinue.models.offline.transcript import ToolExchange


def exchange(text, name="grep", is_error=False, **arguments):
    return ToolExchange(ToolCall("rules_1", name, arguments), text, is_error)


def test_matches_and_notices_are_told_apart():
    text = "a/b.py:2: def f(a):\nc-d.py:10:     f(1)\n\n[2 matches limit reached. Use limit=4]"

    hits = [Hit.of("a/b.py", 2, "def f(a):"), Hit.of("c-d.py", 10, "    f(1)")]
    assert parse_matches(text, ".") == (hits, True)


def test_a_search_in_a_folder_keeps_the_folder():
    hits, _ = parse_matches("b.py:2: def f(a):", "src")

    assert [hit.path for hit in hits] == ["src/b.py"]


def test_generated_lines_are_dropped():
    assert parse_matches("a.js:1: " + "x" * 500 + "\nb.c:2: __pyx_f()", ".")[0] == []


def test_notices_are_no_content():
    findings = collect_findings(
        [exchange("one\ntwo\n\n[8 more lines in file. Use offset=3 to continue.]", "read", path="a.txt", limit=2)], {}
    )

    assert findings.excerpts == [Excerpt("a.txt", 1, ("one", "two"))]


def test_errors_are_kept_in_mind():
    findings = collect_findings([exchange("Path not found: /x\nmore", "ls", is_error=True, path="x")], {})

    assert findings.errors == ["ls: Path not found: /x"]


def test_a_line_knows_its_function():
    outline = "1: class A:\nm.py:2:     def f(self):\nm.py:5:     def g(self):\nm.py:9: NAMES = ["
    findings = collect_findings([exchange("m.py:" + outline, path="m.py", pattern=OUTLINE)], {})
    inside, after = Hit.of("m.py", 6, "        f()"), Hit.of("m.py", 10, '    "f",')

    home = findings.enclosing(inside)

    assert home is not None
    assert (home.about.name, findings.container(home).about.name, findings.end_of(home)) == ("g", "A", 8)
    assert findings.enclosing(after) is None


def test_nothing_found_is_nothing():
    findings = collect_findings(
        [exchange("No matches found", pattern="x"), exchange("No files found matching pattern", "find", pattern="*")],
        {},
    )

    assert (findings.hits, findings.files) == ({}, [])
