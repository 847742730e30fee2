from retinue.core.messages import TextContent, ToolResultMessage
from retinue.views.export.conversation import render_messages


def show(text):
    return render_messages([ToolResultMessage("c", "bash", [TextContent(text)], False, 1)])


def test_left_out_lines_are_counted():
    text = "".join(f"line {n:05}\n" for n in range(30_000))
    shown = show(text)
    kept = shown.count("line ")
    assert f"\n… {30_000 - kept} more lines</pre>" in shown and 0 < kept < 30_000


def test_whole_results_are_not_cut():
    assert "more line" not in show("line\n" * 1000)
