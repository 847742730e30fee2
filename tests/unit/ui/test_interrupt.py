from retinue.ui.interrupt import DoublePress, describe_scope


def test_scope_reads_like_a_sentence():
    assert [describe_scope("esc", count) for count in (0, 1, 3)] == [
        "esc: stop the agent",
        "esc: stop the agent · esc esc: also 1 run",
        "esc: stop the agent · esc esc: also 3 runs",
    ]


def test_only_a_quick_second_press_counts():
    key = DoublePress(2.0)
    assert [key.press(now_s) for now_s in (10, 11, 11.5, 14, 15.9, 20)] == [False, True, False, False, True, False]
    key.arm(30)
    assert (key.press(31), key.press(32)) == (True, False)
