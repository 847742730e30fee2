import pytest

from retinue.core.definition import DeclaredTools, Definition
from retinue.features.extensions.candidates import Candidate, WantedExtensions, choose_extensions, is_path, to_wanted

ALL = tuple(Candidate(name, "user", f"/e/{name}.py") for name in ("Guard", "ops", "wiki"))


def choose(**wanted):
    return [candidate.name for candidate in choose_extensions(ALL, WantedExtensions(**wanted))]


def define(**fields):
    return Definition(name="a", dialect="pi", source="user", path="/a.md", **fields)


def test_all_are_given_by_default():
    assert choose() == choose(selection=True) == choose(selection=("x", "*")) == ["Guard", "ops", "wiki"]


@pytest.mark.spec("fleet:B34")
def test_isolated_run_gets_none():
    assert choose(isolated=True) == choose(isolated=True, selection=("ops",), always=("ops",)) == []
    assert choose(selection=False, always=("ops",)) == choose(selection=()) == []


@pytest.mark.spec("fleet:B36")
def test_names_ignore_case():
    assert choose(selection=("GUARD", "Wiki")) == ["Guard", "wiki"]
    assert choose(excluded=("guard", "WIKI")) == ["ops"]


@pytest.mark.spec("fleet:B35")
def test_exclusion_beats_every_list():
    assert choose(selection=("ops", "*"), excluded=("ops",)) == ["Guard", "wiki"]
    assert choose(selection=("ops",), excluded=("ops.py",), always=("ops",)) == []


def test_always_exposed_joins_a_list():
    assert choose(selection=("wiki",), always=("GUARD", "gone")) == ["Guard", "wiki"]


def test_listed_file_counts_first():
    file = Candidate("ops", "path", "/p/lib/ops.py")
    assert choose_extensions((file, *ALL), WantedExtensions(("./lib/ops.py", "wiki"))) == (file, ALL[2])


def test_paths_are_told_from_names():
    entries = ("ops", "./ops.py", "~/ops.py", "lib\\ops.py", "*", "~lost", "ops.py")
    assert [entry for entry in entries if is_path(entry)] == ["./ops.py", "~/ops.py", "lib\\ops.py", "~lost"]


@pytest.mark.parametrize("wish", [{"excluded": ("Ops",)}, {"isolated": True}])
def test_unwanted_paths_are_not_looked_up(wish):
    assert WantedExtensions(("./lib/ops.py",)).paths == ("./lib/ops.py",)
    assert WantedExtensions(("./lib/ops.py",), **wish).paths == ()


def test_definition_says_what_is_wanted():
    definition = define(extensions=("ops",), exclude_extensions=("wiki",), isolated=None)
    assert to_wanted(definition, always=["guard"]) == WantedExtensions(("ops",), ("wiki",), False, ("guard",))
    assert to_wanted(define(isolated=True)).is_none
    assert to_wanted(define(), isolated=True).is_none


@pytest.mark.spec("fleet:B35")
def test_selectors_unload_nothing():
    definition = define(tools=DeclaredTools(names=(), selectors=("ext:ops/status",)))
    assert choose_extensions(ALL, to_wanted(definition)) == ALL
