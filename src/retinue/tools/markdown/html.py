"""HTML as markdown: one pass over the tags, in time that grows with the length and with nothing else.

Standard library only. Scripts, styles and navigation are left out; no page, however broken, is an error.
"""

import re
from collections.abc import Callable
from enum import Enum
from html import unescape
from typing import NamedTuple, TypeAlias
from urllib.parse import urljoin, urlsplit

from retinue.tools.markdown.tables import render_table

MAX_DEPTH = 8
"""Marks and lists inside of each other beyond this are read as one."""
MAX_TAG_CHARS = 20_000
_MAX_CELL = 500
_RAW = frozenset(("script", "style", "textarea", "xmp"))
"""What is inside is no HTML."""
_DROPPED = frozenset(("svg", "template", "iframe", "object", "nav", "canvas", "noscript", "dialog", "select", "math"))
_BLOCKS = frozenset(
    (
        *("p", "div", "section", "article", "main", "header", "footer", "aside", "figure", "figcaption", "address"),
        *("form", "fieldset", "details", "summary", "dl", "dt", "dd", "body", "html", "hgroup", "center", "legend"),
        *("noscript", "caption", "thead", "tbody", "tfoot", "option", "button"),
    )
)
_MARKS = {"strong": "**", "b": "**", "em": "*", "i": "*", "del": "~~", "s": "~~", "code": "`", "kbd": "`", "samp": "`"}
_HEADINGS = {"h1": "#", "h2": "##", "h3": "###", "h4": "####", "h5": "#####", "h6": "######"}
_HREF = re.compile(r"""\bhref\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_SRC = re.compile(r"""\bsrc\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_ALT = re.compile(r"""\balt\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_CLASS = re.compile(r"""\bclass\s*=\s*["'][^"']*\b(?:language|lang|highlight-source)-([\w+#-]{1,20})""", re.IGNORECASE)
_NAME = re.compile(r"/?[a-zA-Z][a-zA-Z0-9-]*")


_MAX_LEARNT = 2000
_Do: TypeAlias = Callable[[str, str], None]


class _Special(Enum):
    """Tags at which more than an action is wanted."""

    UNKNOWN = 1
    OTHER = 2
    RAW = 3
    LEFT_OUT = 4


_Action: TypeAlias = _Do | _Special | None


class Html(NamedTuple):
    """What a page says."""

    title: str
    markdown: str
    scripts: int
    """How many script elements it has: a page that has many and says little is made by them."""


def to_markdown(text: str, base_url: str = "") -> Html:
    """A page as markdown, with its links made absolute."""
    reader = _Reader(text, base_url, dropped=_DROPPED)
    reader.read()
    if reader.is_lost:
        # An element that is left out was never closed: better too much than nothing.
        reader = _Reader(text, base_url, dropped=frozenset())
        reader.read()
    return Html(reader.title, reader.render(), reader.scripts)


class _Mark(NamedTuple):
    """Something around text that is written when its end is known."""

    name: str
    sign: str
    place: int


class _Reader:
    """One pass over one page."""

    def __init__(self, text: str, base_url: str, *, dropped: frozenset[str]) -> None:
        self._pieces = text.split("<")
        self._at = 0
        self._base = base_url
        self._origin = "{0.scheme}://{0.netloc}".format(urlsplit(base_url)) if base_url else ""
        self._dropped = dropped
        self._blocks: list[str] = []
        self._inline: list[str] = []
        self._marks: list[_Mark] = []
        self._lists: list[int] = []
        """The next number of each open list; -1 for one without numbers."""
        self._quotes = 0
        self._lead = ""
        """What the next line begins with: the sign of its list, or a heading's."""
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
        """Go through all pieces."""
        pieces, actions, inline, dropped = self._pieces, self._actions, self._inline, self._dropped
        if pieces[0]:
            self._add(pieces[0])
        unknown = _Special.UNKNOWN
        self._at = 1
        while self._at < len(pieces):
            piece = pieces[self._at]
            inside, bracket, after = piece.partition(">")
            word = inside.partition(" ")[0]
            action = actions.get(word, unknown)
            if action is unknown:
                action = self._learn(word, piece)
            if action is _Special.OTHER:
                self._read_other(piece)
                continue
            self._at += 1
            if "=" in inside and _is_open(inside) and bracket:
                inside, after = self._read_long(inside, after)
            if action is _Special.RAW:
                self._skip_raw(_find_name(word))
                continue
            if action is _Special.LEFT_OUT:
                if _find_name(word) in dropped and not inside.endswith("/"):
                    self._skip_element(_find_name(word))
                    continue
            elif action is not None and not isinstance(action, _Special):
                action(word, inside)
            if after:
                inline.append(unescape(after) if "&" in after else after)
        self._flush()
        self._end_table("table", "")

    def _learn(self, word: str, piece: str) -> "_Action":
        """What to do at a tag that is spelled in a new way, remembered while there are few."""
        name = _find_name(word)
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
        """All blocks, one blank line between them."""
        return re.sub(r"\n{3,}", "\n\n", "\n\n".join(self._blocks)).replace("\n\n\0", "\n").replace("\0", "").strip()

    def _read_long(self, inside: str, after: str) -> tuple[str, str]:
        """A tag with a `>` or `<` in a value: the rest of it is in the text, or in the next pieces."""
        whole = f"{inside}>{after}"
        more = self._at
        while _is_open(whole) and more < len(self._pieces) and len(whole) < MAX_TAG_CHARS:
            whole = f"{whole}<{self._pieces[more]}"
            more += 1
        end = _find_end(whole[:MAX_TAG_CHARS])
        if end < 0:
            return inside, after
        # What was read too far is read again.
        rest, *others = whole[end + 1 :].split("<")
        self._at = more - len(others)
        self._pieces[self._at : more] = others
        return whole[:end], rest

    def _read_other(self, piece: str) -> None:
        """A comment, a declaration, or a sign that begins no tag."""
        self._at += 1
        if piece.startswith("!--"):
            end = piece.find("-->", 1)
            while end < 0 and self._at < len(self._pieces):
                piece = self._pieces[self._at]
                self._at += 1
                end = piece.find("-->")
            if end >= 0:
                self._add(piece[end + 3 :])
        elif piece.startswith(("!", "?", "/")):
            self._add(piece.partition(">")[2])
        else:
            self._add("<" + piece)

    def _skip_raw(self, name: str) -> None:
        if name == "script":
            self.scripts += 1
        end = "/" + name
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            if piece[: len(end)].lower() == end:
                self._add(piece.partition(">")[2])
                return

    def _skip_element(self, name: str) -> None:
        depth, end = 1, "/" + name
        length = len(name)
        while self._at < len(self._pieces):
            piece = self._pieces[self._at]
            self._at += 1
            head = piece[: length + 1].lower()
            if head == end:
                depth -= 1
                if not depth:
                    self._add(piece.partition(">")[2])
                    return
            elif head[:length] == name and not head[length:].isalnum():
                depth += 1
            elif head[:6] == "script":
                self._skip_raw("script")
        self.is_lost = True

    def _add(self, text: str) -> None:
        self._inline.append(unescape(text) if "&" in text else text)

    def _flush(self) -> None:
        """Write the line that was collected."""
        if self._is_pre or not self._inline:
            return
        if self._marks:
            self._end_marks()
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
            # The NUL joins an item to the one before it without a blank line.
            self._blocks.append(f"\0{quote}{indent}{lead or '  '}{text}")
        else:
            self._blocks.append(f"{quote}{lead}{text}")

    def _end_marks(self) -> None:
        while self._marks:
            self._end_mark(self._marks[-1].name, "")

    def _begin_mark(self, name: str, inside: str) -> None:
        name = _find_name(name)
        if self._is_pre:
            found = _CLASS.search(inside) if name == "code" else None
            self._language = found[1] if found else self._language
        elif len(self._marks) < MAX_DEPTH:
            self._marks.append(_Mark(name, _MARKS[name], len(self._inline)))

    def _begin_link(self, name: str, inside: str) -> None:
        if self._is_pre or len(self._marks) >= MAX_DEPTH or any(mark.name == "a" for mark in self._marks):
            return
        self._marks.append(_Mark("a", self._find_url(_HREF, inside), len(self._inline)))

    def _end_mark(self, name: str, inside: str) -> None:
        marks = self._marks
        name = _find_name(name).lstrip("/")
        if self._is_pre or not marks or (marks[-1].name != name and all(mark.name != name for mark in marks)):
            return
        while True:
            mark = marks.pop()
            body = "".join(self._inline[mark.place :])
            text = body.strip()
            if text and mark.sign:
                before, after = body[: len(body) - len(body.lstrip())], body[len(body.rstrip()) :]
                around = f"[{text}]({mark.sign})" if mark.name == "a" else f"{mark.sign}{text}{mark.sign}"
                self._inline[mark.place :] = [f"{before and ' '}{around}{after and ' '}"]
            if mark.name == name:
                return

    def _add_image(self, name: str, inside: str) -> None:
        found = _ALT.search(inside)
        alt = " ".join(unescape(found[1] or found[2] or "").split()) if found else ""
        url = self._find_url(_SRC, inside)
        if alt and not self._is_pre:
            self._inline.append(f"![{alt}]({url})" if url else alt)

    def _find_url(self, pattern: re.Pattern[str], inside: str) -> str:
        found = pattern.search(inside)
        if found is None:
            return ""
        url: str = found[1] or found[2] or found[3] or ""
        if "&" in url:
            url = unescape(url)
        if " " in url or "\n" in url:
            url = "".join(url.split())
        if url.startswith(("https://", "http://", "mailto:")):
            return url
        if not url or url[0] == "#" or url[:11].lower() == "javascript:" or url[:5].lower() == "data:":
            return ""
        if url[0] == "/" and url[1:2] != "/":
            return self._origin + url
        try:
            return urljoin(self._base, url)
        except ValueError:
            return ""

    def _begin_block(self, name: str, inside: str) -> None:
        self._flush()

    def _begin_heading(self, name: str, inside: str) -> None:
        self._flush()
        self._lead = _HEADINGS[_find_name(name)] + " "

    def _end_heading(self, name: str, inside: str) -> None:
        self._flush()
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
        self._lists.append(1 if _find_name(name) == "ol" else -1)

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
        if url := self._find_url(_HREF, inside):
            self._base = urljoin(self._base, url)
            self._origin = "{0.scheme}://{0.netloc}".format(urlsplit(self._base))

    def _build_openers(self) -> dict[str, _Do]:
        table: dict[str, _Do] = dict.fromkeys(_BLOCKS, self._begin_block)
        table |= dict.fromkeys(_MARKS, self._begin_mark)
        table |= dict.fromkeys(_HEADINGS, self._begin_heading)
        table |= {"a": self._begin_link, "img": self._add_image, "br": self._break_line, "hr": self._draw_line}
        table |= {"ul": self._begin_list, "ol": self._begin_list, "menu": self._begin_list, "li": self._begin_item}
        table |= {"blockquote": self._begin_quote, "pre": self._begin_pre, "table": self._begin_table}
        table |= {"tr": self._begin_row, "td": self._begin_cell, "th": self._begin_cell}
        return table | {"title": self._begin_title, "base": self._set_base}

    def _build_closers(self) -> dict[str, _Do]:
        table: dict[str, _Do] = dict.fromkeys(_BLOCKS, self._begin_block)
        table |= dict.fromkeys((*_MARKS, "a"), self._end_mark)
        table |= dict.fromkeys(_HEADINGS, self._end_heading)
        table |= {"ul": self._end_list, "ol": self._end_list, "menu": self._end_list, "li": self._begin_block}
        table |= {"blockquote": self._end_quote, "pre": self._end_pre, "table": self._end_table}
        return table | {
            "tr": self._begin_block,
            "td": self._begin_block,
            "th": self._begin_block,
            "title": self._end_title,
        }


def _find_name(word: str) -> str:
    """The name of a tag, with the sign of its end; empty for what is no tag."""
    if word.isalpha() and word.islower():
        return word
    found = _NAME.match(word)
    return found[0].lower() if found else ""


def _is_open(inside: str) -> bool:
    """Whether a value in a tag has begun and not ended."""
    return inside.count('"') % 2 == 1 or ("='" in inside and inside.count("'") % 2 == 1)


def _find_end(whole: str) -> int:
    """Where a tag ends: at the first bracket that is in no value."""
    quote = ""
    for place, character in enumerate(whole):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == ">":
            return place
    return -1
