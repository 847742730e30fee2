"""A question of a run above the editor: who asks, what is decided, and the keys that answer it.

It takes keys from the editor while it is shown; the text in the editor stays unchanged.
"""

import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.text import Text
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.events import Click, Key, Resize
from textual.message import Message
from textual.widgets import Input, Static

from retinue.core.pattern import late_pattern
from retinue.core.run import Question
from retinue.ui.formats import clean_line, clean_whole
from retinue.ui.renderers.tool import color_diff
from retinue.ui.widgets.line import TextLine

if TYPE_CHECKING:
    from retinue.ui.app import RetinueApp
    from retinue.views.call_changes import CallChange

_BLANKS = late_pattern(r" {33,}")
_EMPTY_LINES = late_pattern(r"(?:[ \t]*\n){6,}")
_AGREE = ("allow", "yes", "ok")
OTHER = "another answer"
_REFUSE = ("deny", "no", "cancel")


def render_matter(text: str) -> str:
    """The full text to decide about, escaped; long runs of blanks are replaced by a note of their length."""
    shown = "".join(_reveal(sign) for sign in text)
    shown = clean_whole(shown)
    shown = _EMPTY_LINES.sub(lambda found: f"\n⟨{found[0].count(chr(10)) - 1} empty lines⟩\n", shown)
    return _BLANKS.sub(lambda found: f" ⟨{len(found[0])} blanks⟩ ", shown)


def describe_size(text: str) -> str:
    """`1,234 characters, 12 lines`."""
    lines = text.count("\n") + 1
    return f"{len(text):,} character{'s' if len(text) != 1 else ''}" + (f", {lines:,} lines" if lines > 1 else "")


def render_asker(question: Question, description: str = "") -> str:
    """Who asks, for example `Explore "follow the readers"`; `the agent` for the main agent."""
    if not question.agent:
        return "the agent"
    run = f'"{clean_line(description, 60)}"' if description else f"(run {clean_line(question.run_id, 40)})"
    return f"{clean_line(question.agent, 60)} {run}"


def list_answers(question: Question) -> tuple[str, ...]:
    """The answers that are offered; the last may be to deny with a reason, or to write another answer."""
    if question.kind == "ask" and question.options:
        return (*question.options, OTHER)
    return (*question.options, f"{question.reason_for}, and say why") if question.reason_for else question.options


def render_change(change: "CallChange", text: str, colors: Mapping[str, str]) -> Text:
    """A diff in colours; if it is cut, the whole call follows."""
    shown = color_diff(render_matter("\n".join(change.rows)), colors)
    if change.hidden:
        shown.append(f"\n⟨{change.hidden:,} more lines in the diff; the whole call:⟩\n", style="bold")
        shown.append(render_matter(text))
    return shown


def describe_change(change: "CallChange") -> str:
    """`src/a.py  +3 -1`."""
    counts = "new file  " if change.is_new else ""
    return f"{clean_line(change.path, 300)}  {counts}+{change.added} -{change.removed}"


def _find_change(question: Question) -> "CallChange | None":
    if not question.folder:
        return None
    from retinue.views.call_changes import find_change

    return find_change(question)


def find_letters(question: Question) -> dict[str, str]:
    """The answer for each key: `y`, `n`, `a` for the answer that also applies later, `r` for a denial with a reason,
    and numbers for all.
    """
    options = list_answers(question)
    keys = {str(number): option for number, option in enumerate(options[:9], 1)}
    if question.kind in ("approval", "confirm"):
        agree = next((option for option in options if option.lower() in _AGREE), None)
        refuse = next((option for option in options if option.lower() in _REFUSE), None)
        again = next((option for option in options if agree and option != agree and option.startswith(agree)), None)
        explain = options[-1] if question.reason_for else None
        named = (("y", agree), ("n", refuse), ("a", again), ("r", explain))
        keys |= {key: option for key, option in named if option is not None}
    return keys


def find_key(question: Question, option: str) -> str:
    """The key shown before an answer."""
    keys = [key for key, answer in find_letters(question).items() if answer == option]
    return keys[-1] if keys else ""


def _reveal(sign: str) -> str:
    """Show an invisible or blank-like character by its code."""
    if sign in " \n\t":
        return sign
    if sign == "\u2800" or unicodedata.category(sign) in ("Zs", "Zl", "Zp", "Cf"):
        return ascii(sign)[1:-1]
    return sign


WAIT_LIMIT_S = 0.7
"""Letters, arrows and enter count as answers only after this pause, so that nobody agrees while writing a sentence or
choosing from a list."""


ANSWER_HINT = "your answer; empty lets the agent decide"
AGAIN_S = 1.0
"""Seconds after an answer in which a key may still be meant for the previous question."""
TIGHT_ROWS = 18
"""On screens with fewer rows, everything is drawn as short as possible."""


class QuestionBox(Vertical):
    """Shows the oldest open question."""

    DEFAULT_CSS = """
    QuestionBox {
        height: auto; max-height: 100%; border: round $warning; padding: 0 1; display: none; background: $background;
    }
    QuestionBox.-open { display: block; }
    QuestionBox.-aside { border: round $foreground 40%; }
    QuestionBox > #asked { height: auto; max-height: 4; }
    QuestionBox > #matter-scroll { height: auto; max-height: 12; scrollbar-size-vertical: 1; background: $boost; }
    QuestionBox #matter { height: auto; padding: 0 1; }
    QuestionBox > #answers { height: auto; }
    QuestionBox > #free { border: none; height: 1; padding: 0; background: $boost; display: none; }
    QuestionBox.-free > #free { display: block; }
    QuestionBox > #how { height: 1; color: $text-muted; }
    QuestionBox.-tight { border: none; }
    QuestionBox.-tight > #how { display: none; }
    """
    app: "RetinueApp"

    @dataclass
    class Answered(Message):
        question: Question
        answer: str

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.wait_limit_s = WAIT_LIMIT_S
        self.question: Question | None = None
        """The question that is shown."""
        self._lit = 0
        self._more = 0
        self._quiet_s = 0.0
        self._is_aside = False
        self._answered_s = float("-inf")
        self._was_answered = False
        """Whether the previous question was answered just now, so that a key may be a repeated press."""
        self._change: CallChange | None = None

    def compose(self) -> ComposeResult:
        yield Static("", id="asked", markup=False)
        with VerticalScroll(id="matter-scroll", can_focus=False):
            yield Static("", id="matter", markup=False)
        yield Static("", id="answers", markup=False)
        yield TextLine(id="free")
        yield Static("", id="how", markup=False)

    @property
    def is_aside(self) -> bool:
        """Whether keys go to the editor although a question is open."""
        return self.question is not None and self._is_aside

    def show(self, questions: list[Question]) -> None:
        """Show the oldest question, or nothing."""
        first = questions[0] if questions else None
        more = max(0, len(questions) - 1)
        if first == self.question and more == self._more:
            return
        is_new = first != self.question
        self.question, self._more = first, more
        self.set_class(first is not None, "-open")
        if first is None:
            self._leave()
            return
        if is_new:
            self._open(first)
        self.redraw()

    def fit(self, rows: int, taken: int = 0) -> None:
        """Leave room for the answers on a screen with `rows` rows: only the text to decide about scrolls.

        `taken` rows are needed by other widgets.
        """
        is_tight = rows < TIGHT_ROWS
        self.set_class(is_tight, "-tight")
        options = 0 if self.question is None else len(list_answers(self.question))
        self.query_one("#asked").styles.max_height = 1 if rows < 8 else 2 if is_tight else 4
        rest = 5 if is_tight else options + 11 + taken
        self._scroll.styles.max_height = max(1, min(rows // 2, rows - rest))
        self.redraw()

    def take_key(self, key: str, *, is_printable: bool) -> bool:
        """Handle a key for the question; False if it is not for it."""
        question, keys = self.question, self.app.keys
        if question is None or self.has_class("-free"):
            return False
        if keys.means(key, "app.question.aside"):
            self._set_aside(is_aside=not self._is_aside)
            if not (question.options or self._is_aside):
                self._open_free(ANSWER_HINT)
            return True
        if self._is_aside:
            return False
        if is_printable and time.monotonic() < self._quiet_s:
            if self._was_answered:
                return True  # meant for the previous question, not for the editor
            self._quiet_s = time.monotonic() + self.wait_limit_s
            return False
        step = keys.step(key, "tui.select.up", "tui.select.down")
        if time.monotonic() < self._quiet_s and (step or keys.means(key, "tui.select.confirm")):
            return True  # pressed for what had the keys before, such as the list of agents
        self._was_answered = False
        if keys.means(key, "tui.select.cancel"):
            self.answer_default()
        elif step:
            self._lit = (self._lit + step) % max(1, len(list_answers(question)))
            self.redraw()
        elif keys.means(key, "tui.select.confirm"):
            self._confirm(question)
        elif step := keys.step(key, "app.question.scrollUp", "app.question.scrollDown"):
            self._scroll.scroll_relative(y=step, animate=False)
        elif answer := find_letters(question).get(key.lower()):
            self._answer(answer)
        else:
            # The user has started to write: the letters that follow are not answers.
            self._quiet_s = time.monotonic() + self.wait_limit_s
            return False
        return True

    def scroll_page(self, step: int) -> bool:
        """Scroll the text by a page; False if there is nothing to scroll."""
        scroll = self._scroll
        if self.question is None or not scroll.max_scroll_y:
            return False
        (scroll.scroll_page_down if step > 0 else scroll.scroll_page_up)(animate=False)
        return True

    def answer_default(self) -> bool:
        """Give the default answer, or go back to the answers from a reason; False if there is no question.

        The question of a subagent is only set aside: others may answer it.
        """
        question = self.question
        if question is None or (question.kind == "ask" and self._is_aside):
            return False
        if self.has_class("-free") and question.options:
            self._leave()
        elif question.kind == "ask":
            self._leave()
            self._set_aside(is_aside=True)
        else:
            self._answer(question.default)
        return True

    def on_click(self, event: Click) -> None:
        """Give the clicked answer, if each answer has its own line."""
        question, answers = self.question, self.query_one("#answers")
        offered = () if question is None else list_answers(question)
        if question is None or event.widget is not answers or answers.size.height != len(offered):
            return
        event.stop()
        self._answer(offered[event.screen_y - answers.region.y])

    def on_key(self, event: Key) -> None:
        """Go back from the answer to the editor."""
        question = self.question
        if question is not None and question.kind == "ask" and self.app.keys.means(event.key, "app.question.aside"):
            event.stop()
            event.prevent_default()
            self._leave()
            self._set_aside(is_aside=True)

    def on_resize(self, event: Resize) -> None:
        self.redraw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        question, text = self.question, event.value.strip()
        if question is not None and question.options and question.kind != "ask":
            self._answer(f"{question.reason_for}: {text}" if text else question.reason_for)
        else:
            self._answer(event.value)

    @property
    def _scroll(self) -> VerticalScroll:
        return self.query_one("#matter-scroll", VerticalScroll)

    def _open(self, question: Question) -> None:
        now_s = time.monotonic()
        self._quiet_s = now_s + self.wait_limit_s
        self._was_answered = now_s - self._answered_s < AGAIN_S
        self._lit = question.options.index(question.default) if question.default in question.options else 0
        # A subagent asks at any time, and must not take the keys from the user's sentence.
        is_aside = question.kind == "ask"
        self._set_aside(is_aside=is_aside)
        is_free = not question.options and not is_aside
        self._change = _find_change(question)
        self._leave()
        self._draw_matter(question)
        self._scroll.display = bool(question.text)
        self.query_one("#answers").display = bool(question.options)
        self._scroll.scroll_home(animate=False)
        if is_free:
            self._open_free("")

    def recolour(self) -> None:
        """Redraw because the theme has changed."""
        if self.question is not None:
            self._draw_matter(self.question)
            self.redraw()

    def _draw_matter(self, question: Question) -> None:
        shown = Text(render_matter(question.text))
        if self._change is not None:
            shown = render_change(self._change, question.text, self.app.theme_variables)
        self.query_one("#matter", Static).update(shown)

    def _open_free(self, placeholder: str) -> None:
        free = self.query_one("#free", Input)
        free.value, free.placeholder = "", placeholder
        self.add_class("-free")
        free.focus()
        self.redraw()

    def _leave(self) -> None:
        free = self.query_one("#free", Input)
        had_focus = free.has_focus
        self.remove_class("-free")
        if had_focus:
            self.screen.query_one("Editor").focus()
        self.redraw()

    def _set_aside(self, *, is_aside: bool) -> None:
        self._is_aside = is_aside
        self.set_class(is_aside, "-aside")
        self.redraw()

    def _confirm(self, question: Question) -> None:
        # A user who was about to send a text has not read the question yet.
        if time.monotonic() >= self._quiet_s and question.options:
            self._answer(list_answers(question)[self._lit])

    def _answer(self, answer: str) -> None:
        question = self.question
        if question is not None and question.reason_for and answer == list_answers(question)[-1]:
            self._open_free("the reason, for the model")
        elif question is not None and question.options and question.kind == "ask" and answer == OTHER:
            self._open_free(ANSWER_HINT)
        elif question is not None:
            self._answered_s = time.monotonic()
            self.post_message(self.Answered(question, answer))

    def redraw(self) -> None:
        question = self.question
        if question is None or not self.is_mounted:
            return
        colors = self.app.theme_variables
        head = Text()
        head.append("? ", style=f"bold {colors.get('warning', '')}")
        head.append(render_asker(question, self.app.link.describe_run(question.run_id)), style="bold")
        head.append(f": {clean_line(question.title, 300)}")
        if self._change is not None:
            head.append(f"  {describe_change(self._change)}", style="dim")
        elif question.text:
            head.append(f"  {describe_size(question.text)}", style="dim")
        if self._more:
            head.append(f"  · {self._more} more", style=f"bold {colors.get('warning', '')}")
        self.query_one("#asked", Static).update(head)
        self.query_one("#answers", Static).update(self._draw_answers(question, colors.get("accent", "")))
        self.query_one("#how", Static).update(Text(self._draw_hint(question), no_wrap=True, overflow="ellipsis"))

    def _draw_answers(self, question: Question, accent: str) -> Text:
        is_tight = self.has_class("-tight")
        offered = list_answers(question)
        most = self.size.width // max(1, len(offered)) - 5 if is_tight else 300
        lines = []
        for at, option in enumerate(offered):
            is_lit = at == self._lit and not self._is_aside
            line = Text()
            line.append("❯ " if is_lit else "  ", style=accent)
            key = find_key(question, option)
            line.append(f"{key} " if key else "", style="bold")
            # On a very narrow screen there is room for the keys only.
            line.append(clean_line(option, most) if most > 3 else "", style=f"bold {accent}" if is_lit else "")
            lines.append(line)
        return Text("" if is_tight else "\n").join(lines)

    def _draw_hint(self, question: Question) -> str:
        aside, leave = self.app.keys.show("app.question.aside"), self.app.keys.show("tui.select.cancel")
        if self._is_aside:
            return f"{aside}: answer"
        default = clean_line(question.default, 40) or "no answer"
        if self.has_class("-free") and question.options:
            done = "answer" if question.kind == "ask" else f"{default} with this reason"
            return f"enter: {done} · {leave}: back"
        if question.kind == "ask":
            return f"enter: answer · {aside}: back to the editor"
        if not question.options:
            return f"enter: answer · {leave}: {default}"
        length = len(self._change.rows) if self._change is not None else question.text.count("\n")
        scroll = " · pgup/pgdn: scroll" if length > 5 or len(question.text) > 400 else ""
        return f"enter: answer · {leave}: {default}{scroll} · {aside}: editor"
