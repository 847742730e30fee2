"""Word lists and regular expressions that recognise what a question asks for.

This file must not know what is done with them.
"""

import re

from retinue.core.pattern import late_pattern
from retinue.models.offline.words import split_words

EXTENSIONS = split_words(
    """
    py pyi js mjs cjs jsx ts mts cts tsx go rs java kt kts c h cc cpp cxx hpp hh cs rb php sh bash zsh pl lua
    swift scala ex exs erl hs ml m mm sql md rst txt toml yaml yml json jsonl ini cfg conf lock xml html css
    scss vue svelte proto mk cmake gradle tf svg env
    """
)
KNOWN_FILES = ("makefile", "dockerfile", "readme", "license", "changelog", "contributing", "rakefile", "gemfile")

PATH = re.compile(
    r"(?<![\w`/.-])((?:[\w@.~-]+/)+[\w@.-]*[\w]|[\w.-]+\.(?:" + "|".join(EXTENSIONS) + r"))(?![\w/(])", re.IGNORECASE
)
QUOTED = late_pattern(r"`([^`\n]{1,200})`|\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|(?<![\w])'([^'\n]{1,200})'(?!\w)")
IDENTIFIER = late_pattern(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->)[A-Za-z_$][\w$]*)*(?:\(\))?|--?[a-z][\w-]+")
FILE_BLOCK = late_pattern(r'<file name="([^"\n]{1,400})">.*?</file>', re.DOTALL)

PROJECT = (
    r"(?:project|repo|repository|codebase|code ?base|package|library|program|app|application|source code|workspace)"
)
OVERVIEW = late_pattern(
    rf"\bwhat(?:'s| is| does| do| are)?\b.{{0,20}}\b(?:this|the|that|these)\b.{{0,20}}\b{PROJECT}\b"
    rf"(?:\s+(?:do|does|about|for|here))*\s*(?:\?|$|\.|,|and )"
    rf"|\b(?:overview|tour|summary|introduction)\b.{{0,30}}\b{PROJECT}\b|\b{PROJECT}\s+(?:overview|summary|structure|layout)\b"
    rf"|\b(?:summari[sz]e|explain|describe|introduce|understand)\s+(?:to me\s+)?(?:this|the"
    rf"|that)\s+(?:\w+\s+)?{PROJECT}\b"
    rf"|\b(?:how is|how's)\s+(?:this|the)\s+(?:{PROJECT}|code|source)\b.{{0,20}}\b(?:structured|organi[sz]ed"
    rf"|laid out|split|built)"
    r"|\b(?:overall|high[- ]level)\s+(?:architecture|structure|design|overview)\b|^\s*(?:give me an? )?overview\W*$"
    r"|\bwhat(?:'s| is) (?:this|here|in here)\s*\?*\s*$|\bwhat am i looking at\b|\btell me about this\b"
    r"|\bwhat does (?:this|it) do\s*\?*\s*$|^\s*(?:explain|describe|summari[sz]e)\s+(?:this|it|everything)\W*$"
    r"|\bwhat (?:are|is) the (?:main|major|key|most important) (?:parts?|modules?|components?|packages?|pieces)\b",
    re.IGNORECASE,
)
RUN = late_pattern(
    r"\bhow (?:do|can|would|should|to)\b(?: i| we| you| one)?\s+(?:can )?(?:go about )?"
    r"(run|start|launch|install|build|test|compile|set ?up|lint|deploy|execute|try|format|type-?check|benchmark)\b"
    r"|\b(?:command|commands|instructions?|steps)\b.{0,20}\b(run|test|build|install|start|lint)"
    r"|\b(?:run|running|execute|start) the (tests?|test suite|project|app|program|server|demo|linters?|benchmarks?)\b"
    r"|\bhow (?:are|is) (?:the )?(tests?) (?:run|executed|started)\b",
    re.IGNORECASE,
)
RUN_WORDS = frozenset(
    split_words(
        """
    run start launch install build test tests compile setup lint deploy execute try format typecheck benchmark
    bench suite unit local locally server app program demo docs doc documentation ci dev development package
    command commands step steps instruction instructions machine scratch source e2e integration type check
    linter linters
    """
    )
)
FACT = late_pattern(
    r"\b(?:what|which|list|show|tell me).{0,30}\b(dependenc(?:y|ies)|licen[cs]e|entry ?points?|npm scripts"
    r"|python version"
    r"|node version|go version|rust version|required version|minimum (?:python|node|go|rust)\b|console scripts?"
    r"|(?:languages?|build system|package manager|test framework|make targets?)\b)"
    r"|\bwhat version\b|\bwhich version\b",
    re.IGNORECASE,
)
USES = late_pattern(
    r"\b(?:who|what|which(?: \w+){0,2}|where|list|find|show|all)\b.{0,40}?\b(?:calls?|callers?|uses|imports?"
    r"|invokes?|references?|refers?"
    r"|instantiates?|depends? on|usages?)\b|\b(?:callers?|usages?|uses|references|call sites?)\s+(?:of|to|for)\b"
    r"|\bwhere\b.{0,60}\b(?:used|called|imported|referenced|invoked|instantiated)\b"
    r"|\bhow is\b.{0,40}\b(?:used|called)\s*\?*$"
    r"|\bwho\b.{0,30}\buse\b",
    re.IGNORECASE,
)
WHERE = re.compile(
    r"\bwhere\b|\bwhich (?:file|module|class|function|line|method|package|part|place)s?\b|\bin what file\b"
    r"|\bdefin(?:ed|ition|es)\b|\blocate\b|\bfind (?:the |me )?(?:definition|class|function|method|code|place)\b"
    r"|\bwhat (?:file|module|class|function)\b|\bpoint me\b",
    re.IGNORECASE,
)
VALUE = late_pattern(
    r"\b(?:default|value|config\w*|settings?|option|options|limit|maximum|max|minimum|message|text|constant"
    r"|pattern|string|how (?:many|long|big|large|often))\b",
    re.I,
)
CHANGE_VERBS = split_words(
    """
    fix write add implement refactor rename remove delete change update create make replace migrate convert
    optimize optimise port upgrade edit modify bump generate rewrite move extract inline improve clean simplify
    speed commit apply patch support
    """
)
CHANGE = late_pattern(
    r"^\s*(?:(?:please|now|then|also|ok|hey|hi|hello)[,:]?\s+)*(?:(?:can|could|would"
    r"|will) you\s+(?:please\s+)?|(?:i|we) (?:want|need|would like)"
    r"(?: you)? to\s+|let'?s\s+|you (?:should|must)\s+|help me\s+(?:to\s+)?)?"
    rf"(?:{'|'.join(CHANGE_VERBS)})\b",
    re.IGNORECASE,
)
GREETING = late_pattern(
    r"^\W*(?:hi|hello|hey|yo|good (?:morning|evening|afternoon|day)|thanks?(?: you)?|thx|bye|ok(?:ay)?|test"
    r"|ping|(?:can you )?help(?: me)?|sup"
    r"|how are you(?: doing)?|who are you|what are you|what can you do(?: for me| here)?|what do you do"
    r"|are you (?:there|an? (?:ai|llm|model|bot)).{0,20}"
    r"|which model are you|what model (?:are you|is this))(?:[\s,]+(?:there|you|all|retinue|friend|world))?\W*$",
    re.IGNORECASE,
)
ELSEWHERE = re.compile(
    r"^[\s\d+*/().,=^%-]*\?*$|\b(?:weather|joke|poem|recipe|horoscope|capital of|president of|stock price"
    r"|translate (?:this|the following)"
    r"|meaning of life|what time is it|today's date|what day is)\b",
    re.IGNORECASE,
)
EXPLAIN_FILE = late_pattern(
    r"\b(?:explain|describe|summari[sz]e|what(?:'s| is| does| do)|how does|walk me|outline|purpose|contents?)\b", re.I
)
PRONOUN = late_pattern(r"\b(?:it|its|that|this|them|they|those|these|he)\b", re.IGNORECASE)

_BEGIN = r"(?:how|where|what|who|which|why)\b"
_VERB = (
    r"(?:how (?:does|do|is|are|can)|where (?:is|are|does|do)|what (?:is|are|does|do|happens)"
    r"|who (?:calls|uses|writes|reads)|why (?:is|are|does|do))\b"
)
JOINT = late_pattern(
    rf"[,;]?\s+and\s+(?={_BEGIN})|(?<=[a-z`)\"'])\?\s+(?:and\s+)?(?={_BEGIN})|[,;]\s+(?={_VERB})", re.IGNORECASE
)
"""Boundary between two questions; after a comma only if a verb follows, since "which" may continue the sentence."""

ASKING = late_pattern(_BEGIN, re.IGNORECASE)
"""Starts like a question."""

ABOUT = late_pattern(r"\s*\(This is about ([^\n]{1,300})\.\)\s*$")
"""The topic, appended to a question that one agent asks another."""

COMPARE = late_pattern(
    r"^\s*(?:please\s+)?compare\s+(?:the\s+)?(.{2,80}?)\s+(?:and|with|to|against)\s+(?:the\s+)?([^?.!\n]{2,80}?)[?.!\s]*$"
    r"|\bdifferences?\s+between\s+(?:the\s+)?(.{2,80}?)\s+and\s+(?:the\s+)?([^?.!\n]{2,80}?)[?.!\s]*$",
    re.IGNORECASE,
)
"""A comparison of two things."""

WHOLE = late_pattern(
    rf"\b(?:review|audit|analy[sz]e|study|inspect|explore|explain|walk me through|tour of|look at)\b.{{0,20}}"
    rf"\b(?:whole|entire|complete|full)\b.{{0,20}}\b{PROJECT}\b"
    rf"|\b(?:thorough|complete|full|detailed|deep)\s+(?:overview|tour|review|analysis|introduction)\b.{{0,20}}\b{PROJECT}\b",
    re.IGNORECASE,
)
"""A question about a whole project."""

MANNER = late_pattern(r"\bhow (?:does|do|is|are|did)\b|\bwhat happens\b|\bexplain\b", re.IGNORECASE)
"""Asks how something happens, not for a value."""
