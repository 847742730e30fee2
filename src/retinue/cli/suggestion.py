"""Words that look like a command but are none: they are answered with a suggestion, not sent to a model."""

import shlex
from collections.abc import Sequence

from retinue.cli.options import COMMANDS
from retinue.core.errors import UsageError, quote

_SETTINGS = "did you mean retinue doctor, which checks the configuration, or /settings in the terminal UI?"
_UPDATE = "retinue does not update itself; install the new version the way you installed this one."
_SYNONYMS = {
    **dict.fromkeys(("config", "configuration", "configure", "settings", "preferences"), _SETTINGS),
    **dict.fromkeys(("update", "upgrade"), _UPDATE),
    "autocomplete": "did you mean retinue completion?",
    "continue": "did you mean retinue --continue?",
    "help": "did you mean retinue --help?",
    "history": "did you mean retinue sessions?",
    "resume": "did you mean retinue --resume?",
    "version": "did you mean retinue --version?",
}
"""What to answer to a word that is a command of other programs."""
_LONG = 8
"""From so many letters on, a name may have two mistakes."""


def check_words(words: Sequence[str], *, is_answer: bool) -> None:
    """Reject one word that is nearly a command, or two or three that continue as one: a typo should cost nothing.

    `is_answer`: the words go to a session that exists already, where "continue" is an ordinary message.
    """
    word = words[0]
    command = next((name for name in COMMANDS if is_close(word.lower(), name)), "")
    actions = {form.split()[0] for form, _ in COMMANDS[command][2] if form} if command else set()
    if len(words) > 3 or (len(words) > 1 and words[1] not in actions):
        return
    remedy = f"o send {'it' if len(words) > 1 else 'the word'} as a prompt: retinue -p {shlex.quote(' '.join(words))}"
    if word == command:
        raise UsageError(f"put the command before its options: retinue {command} …; t{remedy}")
    hint = f"did you mean retinue {command}?" if command else _SYNONYMS.get(word.lower(), "")
    if command or (hint and not is_answer):
        raise UsageError(f"unknown command {quote(word)}; {hint} T{remedy}")


def is_close(word: str, name: str) -> bool:
    """Whether a word is a name with one mistake, with two if it is long, or with its letters in another order."""
    if not word or abs(len(word) - len(name)) > 2:
        return False
    edits = _count_edits(word, name)
    if word[0] != name[0]:
        return edits <= 1
    return edits <= (2 if len(name) >= _LONG else 1) or sorted(name) in (sorted(word), sorted(f"{word}s"))


def _count_edits(word: str, name: str) -> int:
    """Count the letters that are wrong, missing or extra; two adjacent letters that are swapped count as one."""
    older: list[int] = []
    last = list(range(len(name) + 1))
    for row, letter in enumerate(word, 1):
        now = [row]
        for column, other in enumerate(name, 1):
            least = min(last[column] + 1, now[-1] + 1, last[column - 1] + (letter != other))
            if row > 1 and column > 1 and letter == name[column - 2] and other == word[row - 2]:
                least = min(least, older[column - 2] + 1)
            now.append(least)
        older, last = last, now
    return last[-1]
