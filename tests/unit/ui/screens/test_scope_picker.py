from retinue.ui.screens.scope_picker import ModelDraft

KNOWN = ("one/a", "one/b", "two/c")


def draft(*chosen):
    return ModelDraft(KNOWN, chosen)


def test_all_are_in_without_choice():
    every = ModelDraft(KNOWN)
    assert (every.names, every.rows, every.count()) == ((), KNOWN, 3)
    assert every.add(("one/a",)) is every


def test_taking_one_out_names_the_others():
    assert ModelDraft(KNOWN).toggle("one/b").chosen == ("one/a", "two/c")


def test_last_one_taken_in_means_all():
    assert draft("two/c", "one/a").toggle("one/b") == ModelDraft(KNOWN)


def test_chosen_come_first_in_order():
    assert draft("two/c", "gone/x").rows == ("two/c", "gone/x", "one/a", "one/b")
    assert draft("two/c", "gone/x").count() == 1


def test_thinking_level_stays_with_its_model():
    pinned = draft("one/a:high", "two/c")
    assert (pinned.has("one/a"), pinned.rows[0]) == (True, "one/a")
    assert pinned.move("one/a", 1).names == ("two/c", "one/a:high")
    assert pinned.toggle("one/a").names == ("two/c",)
    assert [pinned.find_level(ref) for ref in KNOWN] == ["high", "", ""]


def test_moving_stops_at_the_ends():
    two = draft("one/a", "one/b")
    assert (two.move("one/a", -1), two.move("one/b", 1), two.move("two/c", 1)) == (two, two, two)


def test_provider_goes_in_whole():
    assert draft("two/c", "one/b").drop(("two/c",)).toggle_provider("one/a").chosen == ("one/b", "one/a")
    assert draft("one/a", "one/b").toggle_provider("one/a").chosen == ()
