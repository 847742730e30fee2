"""Converts HTML to markdown in one pass and linear time. Standard library only.

Scripts, styles, navigation and hidden elements are left out. Broken HTML is never an error.
"""

import re
from collections.abc import Callable
from enum import Enum
from html import unescape
from typing import NamedTuple, TypeAlias

from retinue.core.pattern import late_pattern
from retinue.tools.markdown.hidden import Hidden
from retinue.tools.markdown.links import Links
from retinue.tools.markdown.marks import SIGNS, Marks, render_table
from retinue.tools.markdown.skipped import Level
from retinue.tools.markdown.tags import VOID, find_end, find_name, is_plain

MAX_DEPTH = 8
"""Marks and lists that are nested deeper are flattened."""
_MAX_CELL = 500
_RAW = frozenset(("script", "style", "textarea", "xmp", "iframe", "noscript", "noembed", "noframes"))
"""Their content is not HTML."""
_UNSEEN = frozenset(("template", "dialog", "canvas", "video", "audio", "datalist", "progress", "meter", "rp"))
"""Their content is shown only by scripts, or by browsers that do not know the element."""
_DROPPED = frozenset((*_UNSEEN, "svg", "object", "nav", "select", "math"))
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "aside", "figure", "figcaption", "address"),
        *("form", "fieldset", "details", "summary", "dl", "dt", "dd", "body", "html", "hgroup", "center", "legend"),
        *("caption", "thead", "tbody", "tfoot", "option", "button"),
    )
)
_HEADINGS = {"h1": "#", "h2": "##", "h3": "###", "h4": "####", "h5": "#####", "h6": "######"}
_CLASS = late_pattern(
    r"""\bclass\s*=\s*["'][^"']*\b(?:language|lang|highlight-source)-([\w+#-]{1,20})""", re.IGNORECASE
)
_MAX_LEARNT = 2000
_Do: TypeAlias = Callable[[str, str], None]


class _Special(Enum):
    """Tags that need more than calling an action."""

    UNKNOWN = 1
    OTHER = 2
    RAW = 3
    LEFT_OUT = 4


_Action: TypeAlias = _Do | _Special | None


class Html(NamedTuple):
    """A page as markdown."""

    title: str
    markdown: str
    scripts: int
    """The number of script elements: a page with many scripts and little text is rendered by them."""


def to_markdown(text: str, base_url: str = "") -> Html:
    """Convert a page to markdown with absolute links."""
    reader = _Reader(text, base_url, dropped=_DROPPED)
    reader.read()
    if reader.is_lost:
        # A dropped element was never closed: read again and drop only what is invisible. Too much beats nothing.
        reader = _Reader(text, base_url, dropped=_UNSEEN)
        reader.read()
    return Html(reader.title, reader.render(), reader.scripts)


class _Reader:
    """Reads one page in one pass."""

    def __init__(self, text: str, base_url: str, *, dropped: frozenset[str]) -> None:
        self._pieces = text.split("<")
        self._hidden = Hidden()
        # Whether these words occur in mixed case, so that a plain search is not enough.
        self._is_mixed = any(text.count(word) != text.lower().count(word) for word in ("hidden", "style"))
        self._counts: dict[str, int] = {}
        """How often each block tag occurred."""
        self._at = 0
        self._links = Links(base_url)
        self._dropped = dropped
        self._blocks: list[str] = []
        self._inline: list[str] = []
        self._marks = Marks(self._inline, MAX_DEPTH)
        self._lists: list[int] = []
        """The next number of each open list; -1 for an unnumbered list."""
        self._quotes = 0
        self._lead = ""
        """The prefix of the next line: a list marker or heading signs."""
        self._rows: list[list[str]] | None = None
        self._tables = 0
        self._is_pre = False
        self._language = ""
        self.title = ""
        self.scripts = 0
        self.is_lost = False
        closers = {f"/{name}": action for name, action in self._build_closers().items()}
        self._actions: dict[str, _Action] = {**self._build_openers(), **closers}

    def read(self) -> None:
        pieces, actions, inline, dropped = self._pieces, self._actions, self._inline, self._dropped
        if pieces[0]:
            self._add(pieces[0])
        unknown, other, raw, left_out = _Special.UNKNOWN, _Special.OTHER, _Special.RAW, _Special.LEFT_OUT
        is_mixed = self._is_mixed
        self._at = 1
        while self._at < len(pieces):
            piece = pieces[self._at]
            inside, _, after = piece.partition(">")
            word = inside.partition(" ")[0]
            action = actions.get(word, unknown)
            if action is unknown:
                action = self._learn(word, piece)
            if action is other:
                self._add(self._pass_other(piece))
                continue
            self._at += 1
            if ('"' in inside or "'" in inside) and not is_plain(inside):
                inside, after = self._read_long(piece)
            if action is raw:
                self._add(self._pass_raw(find_name(word), after))
                continue
            if ("=" in inside or is_mixed or "hidden" in inside) and self._is_hidden(inside):
                self._skip_hidden(find_name(word), after)
                continue
            if action is left_out:
                if find_name(word) in dropped and not (inside.endswith("/") and word[:3].lower() in ("svg", "mat")):
                    self._skip_element(find_name(word), after)
                    continue
            elif action is not None:
                action(word, inside)  # type: ignore[operator]
            if after:
                inline.append(unescape(after) if "&" in after else after)
        self._flush()
        self._end_table("table", "")

    def _is_hidden(self, inside: str) -> bool:
        """Whether a tag starts a hidden element."""
        told = inside.lower() if self._is_mixed else inside
        if "hidden" not in told and "style" not in told and not self._hidden.may_name(inside):
            return False
        return told[:1] != "/" and self._hidden.covers(inside)

    def _learn(self, word: str, piece: str) -> "_Action":
        """Return the action for a tag in a new spelling, and remember it while there are few."""
        name = find_name(word)
        if not name:
            return _Special.OTHER
        action: _Action
        if name in _RAW:
            action = _Special.RAW
        elif name in _DROPPED:
            action = _Special.LEFT_OUT
        else:
            action = self._actions.get(name, None)
        if len(self._actions) < _MAX_LEARNT and len(word) < 40:
            self._actions[word] = action
        return action

    def render(self) -> str:
        """Join all blocks with blank lines."""
        return re.sub(r"\n{3,}", "\n\n", "\n\n".join(self._blocks)).replace("\n\n\0", "\n").replace("\0", "").strip()

    def _read_long(self, piece: str) -> tuple[str, str]:
        """Read a tag with `>` or `<` in a value, which spans several pieces; return it and the text after it."""
        whole, more, step = piece, self._at, 8
        while (end := find_end(whole)) < 0 and more < len(self._pieces):
            whole = "<".join((whole, *self._pieces[more : more + step]))
            more, step = min(more + step, len(self._pieces)), step * 2
        if end < 0:
            self._at = len(self._pieces)
            return whole, ""
        # Put back the pieces that were read too far.
        rest, *others = whole[end + 1 :].split("<")
        self._at = more - len(others)
        self._pieces[self._at : more] = others
        return whole[:end], rest

    def _pass_other(self, piece: str) -> str:
        """Skip a comment, a declaration or a `<` that starts no tag; return the text after it."""
        self._at += 1
        if not piece.startswith("!--"):
            return piece.partition(">")[2] if piece.startswith(("!", "?", "/")) else "<" + piece
        end = piece.find("-->", 1)
        while end < 0 and self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            end = piece.find("-->")
        return piece[end + 3 :] if end >= 0 else ""

    def _pass_raw(self, name: str, after: str) -> str:
        """Skip content that is not HTML; return the text after it."""
        if name == "script":
            self.scripts += 1
        begun, end, rest = self._at, "/" + name, ""
        is_comment = is_inner = False
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if piece[: len(end)].lower() == end:
                if not is_inner:
                    rest = piece.partition(">")[2]
                    break
                is_inner = False
            elif name == "script":
                # `<!--<script>` in a script begins an inner one, whose end tag does not end the outer one.
                is_comment = is_comment or piece.startswith("!--")
                is_inner = is_inner or (is_comment and piece[:6].lower() == "script")
            if "-->" in piece:
                is_comment = is_inner = False
        if name == "style":
            self._hidden.learn("<".join((after, *self._pieces[begun : self._at - 1])))
        return rest

    def _skip_element(self, name: str, after: str) -> None:
        """Skip a dropped element."""
        if not self._skip_hidden(name, after):
            self.is_lost = True

    def _skip_hidden(self, name: str, after: str) -> bool:
        """Skip to where a browser ends an element: an end tag, or a tag that implies it. False: nothing ends it."""
        if name in VOID:
            self._add(after)
            return True
        level = Level(name, self._has_open)
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            tag = find_name(piece)
            if not tag:
                self._pass_other(piece)
            elif level.ends_before(tag):
                return True
            else:
                self._at += 1
                inside, bracket, rest = piece.partition(">")
                if not bracket or (('"' in inside or "'" in inside) and not is_plain(inside)):
                    inside, rest = self._read_long(piece)
                if tag in _RAW:
                    self._pass_raw(tag, rest)
                elif level.take(tag, is_closed=inside.endswith("/")):
                    self._add(rest)
                    return True
        return False

    def _has_open(self, name: str) -> bool:
        """Whether an element of this name is open at this place."""
        if name in ("ul", "ol", "menu", "li"):
            return bool(self._lists)
        if name in ("table", "tbody", "thead", "tfoot", "tr", "td", "th"):
            return self._tables > 0
        if name == "blockquote":
            return self._quotes > 0
        signs = ((find_name(word), count) for word, count in self._counts.items())
        return sum(count if word == name else -count if word == f"/{name}" else 0 for word, count in signs) > 0

    def _add(self, text: str) -> None:
        self._inline.append(unescape(text) if "&" in text else text)

    def _flush(self) -> None:
        """Write the collected line as a block."""
        if self._is_pre or not self._inline:
            return
        if self._marks:
            self._marks.end_all()
        text = " ".join("".join(self._inline).split())
        self._inline.clear()
        if not text:
            return
        if self._rows is not None:
            if self._rows and self._rows[-1]:
                row = self._rows[-1]
                row[-1] = f"{row[-1]} {text}" if row[-1] else text
                return
            self._blocks.append(text)
            return
        self._write(text)

    def _write(self, text: str) -> None:
        lead, self._lead = self._lead, ""
        if not self._lists and not self._quotes:
            self._blocks.append(lead + text)
            return
        quote = "> " * min(self._quotes, MAX_DEPTH)
        if self._lists:
            indent = "  " * (min(len(self._lists), MAX_DEPTH) - 1)
            # The NUL joins an item to the previous one without a blank line.
            self._blocks.append(f"\0{quote}{indent}{lead or '  '}{text}")
        else:
            self._blocks.append(f"{quote}{lead}{text}")

    def _begin_mark(self, name: str, inside: str) -> None:
        name = find_name(name)
        if self._is_pre:
            found = _CLASS.search(inside) if name == "code" else None
            self._language = found[1] if found else self._language
        else:
            self._marks.begin(name)

    def _begin_link(self, name: str, inside: str) -> None:
        if not self._is_pre:
            self._marks.begin_link(self._links.find_target(inside))

    def _end_mark(self, name: str, inside: str) -> None:
        if not self._is_pre:
            self._marks.end(find_name(name).lstrip("/"))

    def _add_image(self, name: str, inside: str) -> None:
        if not self._is_pre and (image := self._links.render_image(inside)):
            self._inline.append(image)

    def _begin_block(self, name: str, inside: str) -> None:
        self._flush()
        self._count(name)

    def _count(self, name: str) -> None:
        if name in self._counts or len(self._counts) < _MAX_LEARNT:
            self._counts[name] = self._counts.get(name, 0) + 1

    def _begin_heading(self, name: str, inside: str) -> None:
        self._flush()
        self._count(name)
        self._lead = _HEADINGS[find_name(name)] + " "

    def _end_heading(self, name: str, inside: str) -> None:
        self._flush()
        self._count(name)
        self._lead = ""

    def _break_line(self, name: str, inside: str) -> None:
        if self._is_pre:
            self._inline.append("\n")
        else:
            self._flush()

    def _begin_list(self, name: str, inside: str) -> None:
        self._flush()
        if not self._lists and self._rows is None:
            self._blocks.append("")
        self._lists.append(1 if find_name(name) == "ol" else -1)

    def _end_list(self, name: str, inside: str) -> None:
        self._flush()
        self._lead = ""
        if self._lists:
            self._lists.pop()

    def _begin_item(self, name: str, inside: str) -> None:
        self._flush()
        if self._lists and self._lists[-1] > 0:
            self._lead = f"{self._lists[-1]}. "
            self._lists[-1] += 1
        else:
            self._lead = "- "

    def _begin_quote(self, name: str, inside: str) -> None:
        self._flush()
        self._quotes += 1

    def _end_quote(self, name: str, inside: str) -> None:
        self._flush()
        self._quotes = max(0, self._quotes - 1)

    def _begin_pre(self, name: str, inside: str) -> None:
        self._flush()
        found = _CLASS.search(inside)
        self._language = found[1] if found else ""
        self._is_pre = True

    def _end_pre(self, name: str, inside: str) -> None:
        if not self._is_pre:
            return
        self._is_pre = False
        text = "".join(self._inline).strip("\n").rstrip()
        self._inline.clear()
        if not text:
            return
        if self._rows is not None:
            self._inline.append(text)
            self._flush()
            return
        fence = "```"
        while fence in text:
            fence += "`"
        self._blocks.append(f"{fence}{self._language}\n{text}\n{fence}")

    def _draw_line(self, name: str, inside: str) -> None:
        self._flush()
        if self._rows is None:
            self._blocks.append("---")

    def _begin_table(self, name: str, inside: str) -> None:
        self._flush()
        self._tables += 1
        if self._tables == 1:
            self._rows = []

    def _end_table(self, name: str, inside: str) -> None:
        self._flush()
        self._tables = max(0, self._tables - 1)
        if self._tables or self._rows is None:
            return
        rows, self._rows = [row for row in self._rows if any(row)], None
        is_layout = all(len(row) < 2 for row in rows) or any(len(cell) > _MAX_CELL for row in rows for cell in row)
        if is_layout:
            for cell in (cell for row in rows for cell in row if cell):
                self._write(cell)
        elif rows:
            self._blocks.append(render_table(rows))

    def _begin_row(self, name: str, inside: str) -> None:
        self._flush()
        if self._rows is not None and self._tables == 1:
            self._rows.append([])

    def _begin_cell(self, name: str, inside: str) -> None:
        self._flush()
        if self._rows is not None and self._tables == 1:
            if not self._rows:
                self._rows.append([])
            self._rows[-1].append("")

    def _begin_title(self, name: str, inside: str) -> None:
        self._flush()

    def _end_title(self, name: str, inside: str) -> None:
        text = " ".join("".join(self._inline).split())
        self._inline.clear()
        self.title = self.title or text

    def _set_base(self, name: str, inside: str) -> None:
        self._links.rebase(inside)

    def _build_openers(self) -> dict[str, _Do]:
        table: dict[str, _Do] = dict.fromkeys(_BLOCKS, self._begin_block)
        table |= dict.fromkeys(SIGNS, self._begin_mark)
        table |= dict.fromkeys(_HEADINGS, self._begin_heading)
        table |= {"a": self._begin_link, "img": self._add_image, "br": self._break_line, "hr": self._draw_line}
        table |= {"ul": self._begin_list, "ol": self._begin_list, "menu": self._begin_list, "li": self._begin_item}
        table |= {"blockquote": self._begin_quote, "pre": self._begin_pre, "table": self._begin_table}
        table |= {"tr": self._begin_row, "td": self._begin_cell, "th": self._begin_cell}
        return table | {"title": self._begin_title, "base": self._set_base}

    def _build_closers(self) -> dict[str, _Do]:
        table: dict[str, _Do] = dict.fromkeys(_BLOCKS, self._begin_block)
        table |= dict.fromkeys((*SIGNS, "a"), self._end_mark)
        table |= dict.fromkeys(_HEADINGS, self._end_heading)
        table |= {"ul": self._end_list, "ol": self._end_list, "menu": self._end_list, "li": self._begin_block}
        table |= {"blockquote": self._end_quote, "pre": self._end_pre, "table": self._end_table}
        return table | {
            "tr": self._begin_block,
            "td": self._begin_block,
            "th": self._begin_block,
            "title": self._end_title,
        }
