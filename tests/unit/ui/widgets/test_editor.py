from retinue.ui.widgets.editor import MOST, Pastes, PromptHistory

LONG = "\n".join(map(str, range(12)))


def test_arrows_go_back_and_forth():
    history = PromptHistory(["one", "two"])
    assert [history.move(-1, "draft"), history.move(-1, "two"), history.move(-1, "one")] == ["two", "one", None]
    assert [history.move(1, "one"), history.move(1, "two"), history.move(1, "draft")] == ["two", "draft", None]


def test_repeated_words_are_kept_once():
    history = PromptHistory()
    assert [history.add(text) for text in ("one", "one", " ", "two")] == [True, False, False, True]
    assert [history.move(-1, "") for _ in range(3)] == ["two", "one", None]


def test_earlier_days_come_before_today():
    history = PromptHistory()
    history.add("today")
    history.load(["yesterday"])
    assert [history.move(-1, "") for _ in range(3)] == ["today", "yesterday", None]


def test_history_is_bounded():
    history = PromptHistory(map(str, range(2 * MOST)))
    assert sum(history.move(-1, "") is not None for _ in range(3 * MOST)) == MOST


def test_long_pastes_become_marks():
    pastes = Pastes()
    marks = [pastes.add(LONG), pastes.add("x" * 2000), pastes.add("short")]
    assert marks == ["[paste #1 +12 lines]", "[paste #2 2000 chars]", "short"]
    assert pastes.expand(f"see {marks[0]} and {marks[1]}") == f"see {LONG} and {'x' * 2000}"


def test_changed_marks_are_words():
    pastes = Pastes()
    pastes.add(LONG)
    assert pastes.expand("[paste #1 +11 lines] [paste #2 +12 lines]") == "[paste #1 +11 lines] [paste #2 +12 lines]"


def test_marks_inside_pastes_stay():
    pastes = Pastes()
    first = pastes.add(LONG)
    second = pastes.add(f"{LONG}\n{first}")
    assert pastes.expand(second) == f"{LONG}\n{first}"


def test_mark_before_cursor_is_found():
    pastes = Pastes()
    mark = pastes.add(LONG)
    assert [pastes.find_mark(text) for text in (f"a {mark}", f"{mark} ", "[x]", mark[1:])] == [len(mark), 0, 0, 0]


def test_cleared_marks_are_not_given_again():
    pastes = Pastes()
    pastes.add(LONG)
    pastes.clear()
    assert pastes.add(LONG) == "[paste #2 +12 lines]"
