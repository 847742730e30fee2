"""Classify lines of code by language, and build search patterns for definitions.

Patterns for the search tools must mean the same in ripgrep and `grep -E`. This file must not know questions or tools.
"""

import re
from functools import lru_cache

from msgspec import Struct

from retinue.core.pattern import late_pattern

_FAMILIES = {
    "python": "py pyi",
    "js": "js mjs cjs jsx ts mts cts tsx vue svelte",
    "go": "go",
    "rust": "rs",
    "java": "java kt kts cs scala swift dart groovy gradle",
    "c": "c h cc cpp cxx hpp hh hxx m mm inl",
    "ruby": "rb rake",
    "php": "php",
    "shell": "sh bash zsh ksh",
    "make": "mk",
    "lua": "lua",
    "elixir": "ex exs",
    "markup": "md rst txt adoc markdown html",
    "data": "json yaml yml toml ini cfg conf env lock properties xml",
}
_BY_EXTENSION = {extension: family for family, names in _FAMILIES.items() for extension in names.split()}
_BY_NAME = {"makefile": "make", "gnumakefile": "make", "dockerfile": "shell", "rakefile": "ruby", "gemfile": "ruby"}
FENCES = {"python": "python", "js": "js", "shell": "sh", "make": "make", "data": "", "markup": "markdown"}


class CodeLine(Struct, frozen=True):
    """The role of a line: `definition`, `heading`, `key`, `import`, `comment`, `documentation`, `end` or `code`."""

    role: str
    what: str = ""
    """For a definition: function, class, constant, …"""
    name: str = ""

    @property
    def is_definition(self) -> bool:
        return self.role == "definition"


def _compile(*rules: tuple[str, str]) -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((what, re.compile(pattern)) for what, pattern in rules)


_NO_CALL = (
    r"(?!(?:if|for|while|switch|catch|return|function|else|do|with|await|yield|throw|new|typeof|super|sizeof"
    r"|defined)\b)"
)
_JS_MODIFIERS = r"(?:(?:public|private|protected|static|async|get|set|readonly|override|abstract|declare)\s+)*"
_DEFINITIONS = {
    "python": _compile(
        ("function", r"^(?:async\s+)?def\s+(\w+)"),
        ("method", r"^\s+(?:async\s+)?def\s+(\w+)"),
        ("class", r"^\s*class\s+(\w+)"),
        ("constant", r"^([A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)"),
        ("field", r"^ {4}([A-Za-z_]\w*)\s*:\s*[A-Za-z\"'\[][^=]*(?:=.*)?$"),
        ("field", r"^ {4}([A-Za-z_]\w*) = \S"),
    ),
    "js": _compile(
        ("function", r"^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:async\s+)?function\s*\*?\s*([\w$]+)"),
        ("class", r"^\s*(?:export\s+)?(?:default\s+)?(?:declare\s+)?(?:abstract\s+)?class\s+([\w$]+)"),
        ("interface", r"^\s*(?:export\s+)?(?:declare\s+)?interface\s+([\w$]+)"),
        ("type", r"^\s*(?:export\s+)?(?:declare\s+)?(?:type|enum|namespace|const enum)\s+([\w$]+)\b\s*[=<{]"),
        (
            "function",
            r"^(?:export\s+)?(?:const|let|var)\s+([\w$]+)\s*(?::[^=]+)?=\s*(?:async\s*)?(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|\w+\s*=>)",
        ),
        ("constant", r"^(?:export\s+)?(?:declare\s+)?(?:const|let|var)\s+([\w$]+)"),
        ("export", r"^(?:module\.)?exports\.([\w$]+)\s*=\s*[\w$.]+;?\s*$"),
        ("function", r"^(?:module\.)?exports\.([\w$]+)\s*="),
        ("method", r"^[\w$.]+\.prototype\.([\w$]+)\s*="),
        ("property", r"^\s+([\w$]+)\s*:\s*(?:async\s*)?(?:function\b|\([^()]*\)\s*=>)"),
        ("method", r"^\s+" + _JS_MODIFIERS + r"\*?" + _NO_CALL + r"#?([\w$]+)\s*(?:<[^>]*>)?\([^;]*\{\s*$"),
        ("method", r"^\s+" + _JS_MODIFIERS + _NO_CALL + r"([\w$]+)\s*\??(?:<[^>]*>)?\([^;{}]*\)\s*:[^;{}]*;\s*$"),
    ),
    "go": _compile(
        ("method", r"^func\s+\([^)]*\)\s*(\w+)"),
        ("function", r"^func\s+(\w+)"),
        ("type", r"^type\s+(\w+)"),
        ("constant", r"^(?:var|const)\s+(\w+)"),
        ("constant", r"^\t([A-Z]\w*)\s+(?:[\w.\[\]*]+\s*)?=\s"),
    ),
    "rust": _compile(
        (
            "function",
            r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:default\s+)?(?:(?:async|unsafe|const|extern(?:\s+\"C\")?)\s+)*fn\s+(\w+)",
        ),
        ("type", r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:struct|enum|trait|union|type|mod)\s+(\w+)"),
        ("constant", r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:static|const)\s+(?:mut\s+)?(\w+)\s*:"),
        ("macro", r"^\s*macro_rules!\s+(\w+)"),
        ("impl", r"^\s*impl\b(?:<[^>]*>)?\s+(?:[\w:<>, ]+\s+for\s+)?(\w+)"),
    ),
    "java": _compile(
        ("class", r"^\s*(?:[\w@]+\s+)*(?:class|interface|enum|record|object|struct|protocol|trait)\s+(\w+)"),
        ("function", r"^\s*(?:[\w@]+\s+)*(?:fun|func|def)\s+(?:<[^>]*>\s*)?(?:\w+\.)?(\w+)"),
        (
            "method",
            r"^\s+(?:(?:public|private|protected|static|final|abstract|synchronized|override|internal|async"
            r"|virtual)\s+)+[\w<>\[\],.? ]*?\b(\w+)\s*\([^;]*$",
        ),
        (
            "constant",
            r"^\s*(?:(?:public|private|protected|static|final|const|readonly|val|var|let)\s+)+(?:[\w<>\[\],.?]+\s+)?(\w+)\s*(?::[^=]+)?=",
        ),
    ),
    "c": _compile(
        ("macro", r"^#\s*define\s+(\w+)"),
        ("type", r"^(?:typedef\s+)?(?:struct|enum|union|class)\s+(\w+)\s*(?::[^;]*)?\{?\s*$"),
        ("type", r"^typedef\s[^;]*?(\w+)\s*;"),
        ("function", r"^" + _NO_CALL + r"[A-Za-z_][\w\s*&:<>,~]*?[\s*&](~?\w+(?:::~?\w+)*)\s*\([^;]*$"),
        ("function", r"^" + _NO_CALL + r"([a-z_]\w*(?:::~?\w+)*)\s*\([^;]*$"),
        ("constant", r"^(?:static\s+|const\s+|extern\s+)+[\w\s*]*?\b(\w+)(?:\[[^\]]*\])*\s*="),
        ("declaration", r"^[A-Za-z_][\w\s*]*?[\s*](\w+)\s*\([^;]*\)[^;]*;\s*$"),
    ),
    "ruby": _compile(
        ("method", r"^\s*def\s+(?:self\.)?([\w?!=]+)"),
        ("class", r"^\s*(?:class|module)\s+([\w:]+)"),
        ("constant", r"^\s*([A-Z][A-Z_\d]+)\s*="),
    ),
    "php": _compile(
        ("function", r"^\s*(?:(?:public|private|protected|static|final|abstract)\s+)*function\s+&?(\w+)"),
        ("class", r"^\s*(?:(?:final|abstract)\s+)*(?:class|interface|trait|enum)\s+(\w+)"),
        ("constant", r"^\s*(?:\w+\s+)?const\s+(\w+)"),
    ),
    "shell": _compile(
        ("function", r"^\s*(?:function\s+)?([\w-]+)\s*\(\)"),
        ("function", r"^\s*function\s+([\w-]+)"),
        ("variable", r"^(?:export\s+|readonly\s+)?([A-Za-z_]\w*)="),
    ),
    "make": _compile(("target", r"^([\w./%-]+)(?:\s+[\w./%-]+)*\s*:(?!=)"), ("variable", r"^(\w+)\s*[:?+]?=")),
    "lua": _compile(
        ("function", r"^\s*(?:local\s+)?function\s+([\w.:]+)"), ("variable", r"^(?:local\s+)?([\w.]+)\s*=")
    ),
    "elixir": _compile(("function", r"^\s*defp?\s+(\w+)"), ("module", r"^\s*defmodule\s+([\w.]+)")),
}
_BRACED = frozenset(("js", "go", "rust", "java", "c", "php", "shell"))
_KEY = late_pattern(r"^\s*\"?([\w.@/-]+)\"?\s*[:=]")
_SECTION = late_pattern(r"^\s*\[+([\w.\"-]+)\]+")
_HEADING = late_pattern(r"^#{1,6}\s+(.*\S)")
_COMMENT = late_pattern(
    r"^\s*(?:#(?!\s*(?:define|include|if|endif|else|pragma|!\[))|//|/\*|\*(?!\w)|--\s|;;|<!--|\"\"\"|''')"
)
_IMPORT = late_pattern(
    r"^\s*(?:import\b|from\s+\S+\s+import\b|#\s*include\b|(?:pub(?:\([^)]*\))?\s+)?use\s+[\w:{]|require(?:_relative)?\b|export\s+(?:\*|\{[^}]*\})\s+from\b"
    r"|(?:const|let|var)\s+[^=]+=\s*(?:await\s+)?(?:require|import)\(|\}\s*from\s+['\"]|package\s+[\w.]+;?$|(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+;)"
)


@lru_cache(maxsize=8192)
def find_family(path: str) -> str:
    """The language family of a file name; empty if unknown."""
    name = path.rsplit("/", 1)[-1].lower()
    if name in _BY_NAME:
        return _BY_NAME[name]
    return _BY_EXTENSION.get(name.rsplit(".", 1)[-1], "") if "." in name else ""


def read_line(path: str, text: str) -> CodeLine:
    family = find_family(path)
    text = text[:400]
    if family == "markup":
        heading = _HEADING.match(text)
        return CodeLine("heading", "section", heading.group(1)) if heading else CodeLine("documentation")
    if family == "data":
        found = _SECTION.match(text) or _KEY.match(text)
        return CodeLine("key", "setting", found.group(1).strip('"')) if found else CodeLine("code")
    if text.startswith("}") and family in _BRACED:
        found = re.match(r"\}\s*(\w+)\s*;", text) if family == "c" else None
        return CodeLine("definition", "type", found.group(1)) if found else CodeLine("end")
    if _COMMENT.match(text):
        return CodeLine("comment")
    if _IMPORT.match(text):
        return CodeLine("import")
    for what, pattern in _DEFINITIONS.get(family, ()):
        found = pattern.match(text)
        if found:
            return CodeLine("definition", what, found.group(1))
    return CodeLine("code")


_KEYWORDS = (
    r"(def|class|function|func|fun|fn|struct|enum|union|trait|interface|type|typedef|const|static|let|var|val|module|mod|namespace"
    r"|protocol|object|record|macro_rules!|impl|sub|package|define|local|message|service|defmodule|defp|mut)"
)


def define_pattern(name: str, *, fields: bool = False) -> str:
    """A search pattern for lines that define a name; `name` is a pattern for one identifier."""
    parts = [
        rf"\b{_KEYWORDS}\*?\s+(\([^)]*\)\s*)?([A-Za-z_]\w*(\.|::))*{name}\b",
        rf"^(export\s+|module\.)?([A-Za-z_$]\w*\.)*{name}\s*(:[^=:]+)?[:+?]?=([^=]|$)",
        rf"^[A-Za-z_][A-Za-z0-9_ *&:<>,~]*\b{name}\s*\([^;]*$",
        rf"^{name}\s*(\(|:)[^;]*$",
        rf"^\s+([a-z]+ )*[*#]?{name}\s*(<[^>]*>)?\([^;]*\{{\s*$",
        rf"^\s+{name}\s*:\s*(async )?(function|\()",
        rf"^(public|private|protected|static|final|\s)*\s(public|private|protected|static|final)\s[^;=]*\b{name}\s*\(",
        rf"^#{{1,6}} .*{name}",
        rf"^\}}\s*{name}\s*;",
    ]
    if fields:
        parts.append(rf"^\s+[\"']?(self\.|this\.)?{name}[\"']?\s*(\??:|=)\s*[^=\s]")
    return "(" + "|".join(parts) + ")"


OUTLINE = (
    rf"(^\s*((export|default|declare|pub|pub\([a-z]+\)|public|private|protected|static|final|abstract|async|unsafe|inline|extern)\s+)*{_KEYWORDS}\b"
    r"|^[A-Za-z_][A-Za-z0-9_ *&:<>,~]*\([^;]*$|^\s+([a-z]+ )*[*#]?[A-Za-z_$]\w*\s*(<[^>]*>)?\([^;]*\{\s*$"
    r"|^\}|^[A-Za-z_][A-Za-z0-9_.]*\s*[:=]|^#{1,6} |^[A-Za-z_.-]+:|^[\w-]+\(\))"
)
"""A search pattern for every line of a file that may define something."""


_TESTS = late_pattern(
    r"(?:^|/)(?:tests?|__tests__|specs?|testing|testdata|fixtures|e2e|__mocks__)/|(?:^|/)(?:test_[^/]*|conftest\.py$)|[._-](?:test|tests|spec)\.\w+$|Tests?\.(?:java|kt|cs|swift)$",
    re.I,
)
_VENDORED = late_pattern(
    r"(?:^|/)(?:node_modules|vendor|vendored|_vendor|third_party|site-packages|\.git|\.venv|venv|__pycache__|\.tox|\.[\w-]*cache|\.hypothesis"
    r"|generated|gen|deps|external|extern|locales?|translations|po|gnulib|m4)/|\.min\.\w+$|\.map$|(?:^|/)(?:package-lock\.json|yarn\.lock|uv\.lock|poetry\.lock"
    r"|Cargo\.lock|go\.sum|pnpm-lock\.yaml|Gemfile\.lock|composer\.lock|configure|aclocal\.m4|config\.(?:guess|sub))$|_pb2\.py$|\.pb\.go$"
    r"|\.(?:svg|snap|lock|po|pot|csv|tsv|log)$|(?:^|/)[\w.-]*[a-z0-9]-\d+\.\d+[\w.]*/|\.egg-info/|\.dist-info/|(?:^|/)PKG-INFO$",
    re.I,
)
_SIDE = late_pattern(
    r"(?:^|/)(?:\.[\w-]+|compat|legacy|deprecated|changes|changelog|examples?|samples?|demos?|bench(?:marks?)?|scripts|tools|contrib|templates?|tutorials?|playground|website)/",
    re.I,
)


@lru_cache(maxsize=8192)
def is_test(path: str) -> bool:
    return bool(_TESTS.search(path))


@lru_cache(maxsize=8192)
def is_vendored(path: str) -> bool:
    """Whether a path looks like third-party code, generated code or a lock file."""
    return bool(_VENDORED.search(path))


@lru_cache(maxsize=8192)
def weigh_path(path: str) -> float:
    """How likely a user means this file: 1 for source, less for tests, examples and generated files."""
    family = find_family(path)
    if is_vendored(path):
        return 0.25 if family not in ("", "data", "markup") and ".min." not in path else 0.1
    weight = 1.0
    if is_test(path):
        weight *= 0.4
    if _SIDE.search(path):
        weight *= 0.7
    if path.endswith((".d.ts", ".d.mts", ".d.cts", ".pyi")):
        weight *= 0.45
    if family == "markup":
        weight *= 0.6
    elif family in ("data", ""):
        weight *= 0.7
    return weight
