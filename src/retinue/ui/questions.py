"""How a question is shown and which keys answer it. Pure.

Whatever is to be decided is shown whole: nothing hides behind blanks, signs that are not seen, or a cut.
"""

import re
import unicodedata

from retinue.core.question import Question
from retinue.ui.formats import clean_line, clean_whole

_BLANKS = re.compile(r" {33,}")
_EMPTY_LINES = re.compile(r"(?:[ \t]*\n){6,}")
_AGREE = ("allow", "yes", "ok")
_REFUSE = ("deny", "no", "cancel")


def render_matter(text: str) -> str:
    """All of what is decided, safe and visible: long runs of nothing become a note of how long they are."""
    shown = "".join(_reveal(sign) for sign in text)
    shown = clean_whole(shown)
    shown = _EMPTY_LINES.sub(lambda found: f"\n⟨{found[0].count(chr(10)) - 1} empty lines⟩\n", shown)
    return _BLANKS.sub(lambda found: f" ⟨{len(found[0])} blanks⟩ ", shown)


def describe_size(text: str) -> str:
    """`1,234 characters, 12 lines`."""
    lines = text.count("\n") + 1
    return f"{len(text):,} character{'s' if len(text) != 1 else ''}" + (f", {lines:,} lines" if lines > 1 else "")


def render_asker(question: Question) -> str:
    """Who asks: `Explore (run r-1)`; the main agent has no name."""
    return (
        f"{clean_line(question.agent, 60)} (run {clean_line(question.run_id, 40)})" if question.agent else "the agent"
    )


def find_letters(question: Question) -> dict[str, str]:
    """Which keys give which answer: `y` and `n`, `a` for what counts from now on, and numbers for all."""
    options = question.options
    keys = {str(number): option for number, option in enumerate(options[:9], 1)}
    if question.kind in ("approval", "confirm"):
        agree = next((option for option in options if option.lower() in _AGREE), None)
        refuse = next((option for option in options if option.lower() in _REFUSE), None)
        again = next((option for option in options if agree and option != agree and option.startswith(agree)), None)
        keys |= {key: option for key, option in (("y", agree), ("n", refuse), ("a", again)) if option is not None}
    return keys


def find_key(question: Question, option: str) -> str:
    """The key that is shown before an answer."""
    keys = [key for key, answer in find_letters(question).items() if answer == option]
    return keys[-1] if keys else ""


def _reveal(sign: str) -> str:
    """A sign that looks like nothing, or like a blank, by its number."""
    if sign in " \n\t":
        return sign
    if sign == "\u2800" or unicodedata.category(sign) in ("Zs", "Zl", "Zp", "Cf"):
        return ascii(sign)[1:-1]
    return sign
