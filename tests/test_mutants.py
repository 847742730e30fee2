"""The changes of `make mutants` are real ones, and each excuse is for one of them."""

from scripts.mutants import ROOT, Finder, choose_mutants, list_sources, load_excuses


def test_sample_is_large_and_of_other_programs() -> None:
    chosen = choose_mutants(320, 1)
    large = {path.relative_to(ROOT).as_posix() for path in list_sources() if path.read_text().count("\n") > 30}
    assert (len(chosen) >= 300, large - {mutant.path for mutant in chosen}) == (True, set())
    for mutant in chosen:
        before = (ROOT / mutant.path).read_bytes()
        after = compile(mutant.apply(before), mutant.path, "exec")
        assert after != compile(before, mutant.path, "exec"), mutant.title


def test_excuses_are_for_changes_that_can_be_made() -> None:
    possible = {mutant.key for path in list_sources() for mutant in Finder(path).find()}
    assert set(load_excuses()) - possible == set()
