"""Answer greetings and questions about the model itself, with examples that work in this folder.

This file must not know how evidence was fetched.
"""

import re

from retinue.core.pattern import late_pattern
from retinue.models.offline.answer import NOTE
from retinue.models.offline.evidence import Findings, Hit
from retinue.models.offline.languages import find_family, is_test, is_vendored
from retinue.models.offline.question import OfflineQuestion
from retinue.models.offline.selection import MANIFESTS, top_files

NAMED = r"^\s*(export |pub |public |async |abstract )*(class|interface|struct|def|function|fn|func) +[A-Za-z]\w{3,}"
"""A search pattern for definitions that an example can name."""
_EXAMPLES = 3
_SELF = late_pattern(r"\b(?:who|what|which)\b.*\byou\b|help|model|^\W*(?:hi|hello|hey|good)\b", re.IGNORECASE)


def asks_self(question: OfflineQuestion) -> bool:
    """Whether a question is about this model, or a greeting."""
    return _SELF.search(question.text) is not None


def render_chat(question: OfflineQuestion, findings: Findings) -> str:
    """Say what this model is, and what to ask it here."""
    if not question.text.strip():
        lead = "There was no question."
    elif asks_self(question):
        lead = (
            "I am `offline/rules`: fixed rules, no language model. I search the files here with real tools and quote "
            "what I find; I cannot write or change code."
        )
    else:
        lead = "I can only answer questions about the files here, by searching them."
    if findings.actions and not findings.files:
        lead += " This folder has no files that I can search; start me in a project: `retinue -C DIR`."
    examples = [f"- {text}" for text in _list_examples(findings)[:_EXAMPLES]]
    login = "To use a language model, add a key: `/login`, or `retinue login` in a shell."
    return "\n".join([f"{lead} For example:", *examples, "", login, "", NOTE])


def _list_examples(findings: Findings) -> list[str]:
    """Questions that this model can answer, best first."""
    top, source = top_files(findings), [path for path in findings.files if _is_own(path)]
    found = []
    if any(name in MANIFESTS or name.lower().startswith("readme") for name in top):
        found.append("What does this project do?")
    defined = [hit for hit in findings.hits.values() if hit.about.is_definition and _is_own(hit.path)]
    if defined:
        found.append(f"Where is `{min(defined, key=_weigh).about.name}` defined?")
    if source:
        found.append(f"Explain `{min(source, key=lambda path: (path.count('/'), path))}`")
    return [*found, "Which languages are used here?", "What does this project do?", "How do I run the tests?"]


def _is_own(path: str) -> bool:
    return find_family(path) not in ("", "data", "markup") and not is_test(path) and not is_vendored(path)


def _weigh(hit: Hit) -> tuple[bool, int, str, int]:
    """Classes before functions, and the top of the project first."""
    return hit.about.what != "class", hit.path.count("/"), hit.path, hit.line
