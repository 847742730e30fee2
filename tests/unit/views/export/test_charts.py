import re

from retinue.views.export.charts import BREAK, NAMES, WIDTH, TimeAxis, draw_timeline
from retinue.views.report import ConversationReport, SessionReport, TimeSpan


def span(start_s, end_s, kind="model"):
    return TimeSpan(kind, start_s * 1000, end_s * 1000, "m")


def test_idle_time_has_a_fixed_width():
    axis = TimeAxis([span(0, 10), span(15, 20), span(3620, 3640)])
    assert axis.parts == [(0, 20_000), (3_620_000, 3_640_000)]
    assert (axis.place(0), axis.place(3_640_000)) == (NAMES, WIDTH - 10)
    assert round(axis.place(3_620_000) - axis.place(20_000), 6) == BREAK
    assert axis.place(10_000) - axis.place(0) == axis.place(3_630_000) - axis.place(3_620_000)


def test_timeline_says_how_long_a_break_is():
    main = ConversationReport("main", "talk", agent="main", spans=[span(0, 10), span(3620, 3640)])
    drawn = draw_timeline(SessionReport("s", "t", "/", "", "", main, []))
    assert re.findall(r'class="idle"[^>]*>(?:<title>)?([^<]*)', drawn) == ["idle for 1h 0m", "1h 0m idle"]
    assert "1h 0m</text>" in drawn


def test_many_breaks_leave_room_for_work():
    axis = TimeAxis([span(n * 100, n * 100 + 1) for n in range(200)])
    places = [axis.place(n * 100_000) for n in range(200)]
    assert places == sorted(places) and places[-1] < WIDTH and axis.gap < BREAK
