"""Which of some texts a few typed characters mean: the parts that follow each other count most. Pure."""

from collections.abc import Sequence


def rank_matches(needle: str, texts: Sequence[str]) -> list[int]:
    """The places of the texts that match, best first; all of them, in order, without a needle."""
    words = needle.lower().split()
    if not words:
        return list(range(len(texts)))
    ranked = []
    for place, text in enumerate(texts):
        low = text.lower()
        scores = [_score(word, low) for word in words]
        if None not in scores:
            ranked.append((sum(score for score in scores if score is not None), place))
    return [place for _, place in sorted(ranked)]


def _score(word: str, text: str) -> int | None:
    """How far a text is from what was typed: 0 when it begins with it, None when it is not in it at all."""
    at = text.find(word)
    if at == 0:
        return 0
    if at > 0:
        return 1 if not text[at - 1].isalnum() else 2
    at, gaps = -1, 0
    for character in word:
        found = text.find(character, at + 1)
        if found < 0:
            return None
        gaps += found - at - 1 if at >= 0 else 0
        at = found
    return 10 + gaps
