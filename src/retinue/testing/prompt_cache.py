"""The prompt caches of model providers, by their published rules: what a request reads from them and writes to them.

A token is four characters here. Entries do not expire. Must not know sockets or scripts' files.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

import orjson

from retinue.models.script import ScriptUsage

LOOKBACK_BLOCKS = 20
"""How many blocks before a mark Anthropic looks for an entry."""
MOST_MARKS = 4
ANTHROPIC_TOKENS, OPENAI_TOKENS, GEMINI_TOKENS = 1024, 1024, 4096
"""The shortest prefix that is cached."""
OPENAI_STEP = 128
"""OpenAI's hits are multiples of this many tokens."""


class TooManyMarks(ValueError):
    """Raised for a request that Anthropic refuses."""


class PromptCache:
    """What the providers remember of the requests so far."""

    def __init__(self) -> None:
        self._entries: set[tuple[str, bytes]] = set()

    def count(self, body: dict[str, Any]) -> ScriptUsage:
        """Return the input tokens of a request by kind, and remember its prefixes."""
        if "contents" in body:
            rendered = _render(body.get("systemInstruction"), body.get("tools"), *body["contents"])
            return self._count_prefix("gemini", rendered, GEMINI_TOKENS, 1)
        if "input" in body or not _is_anthropic(body):
            said = body["input"] if "input" in body else body.get("messages", ())
            rendered = _render(body.get("tools"), body.get("instructions"), *said)
            key = f"openai/{body.get('model')}/{body.get('prompt_cache_key', '')}"
            return self._count_prefix(key, rendered, OPENAI_TOKENS, OPENAI_STEP)
        return self._count_blocks(body)

    def _count_prefix(self, key: str, rendered: bytes, least: int, step: int) -> ScriptUsage:
        total, hit, digest = len(rendered) // 4, 0, blake2b(digest_size=16)
        size = OPENAI_STEP * 4
        for place in range(0, len(rendered) - size + 1, size):
            digest.update(rendered[place : place + size])
            entry = key, digest.digest()
            if entry in self._entries and hit == place // 4:
                hit = (place + size) // 4
            self._entries.add(entry)
        hit = hit // step * step if hit >= least else 0
        return ScriptUsage(input=total - hit, cache_read=hit)

    def _count_blocks(self, body: dict[str, Any]) -> ScriptUsage:
        blocks = list(_list_blocks(body))
        marks = [place for place, (_, _, is_marked) in enumerate(blocks) if is_marked]
        if len(marks) > MOST_MARKS:
            raise TooManyMarks(f"A maximum of {MOST_MARKS} blocks with cache_control is allowed, found {len(marks)}")
        digest, sizes, entries = blake2b(digest_size=16), list[int](), list[tuple[str, bytes]]()
        for part, data, _ in blocks:
            digest.update(data)
            sizes.append((sizes[-1] if sizes else 0) + len(data))
            # Other thinking settings are another conversation, with the same prompt and tools.
            mode = orjson.dumps(body.get("thinking")).decode() if part == "messages" else ""
            entries.append((f"anthropic/{body.get('model')}/{mode}", digest.digest()))
        hit = -1
        for mark in reversed(marks):
            looked = range(mark, max(-1, mark - LOOKBACK_BLOCKS), -1)
            if (found := next((place for place in looked if entries[place] in self._entries), None)) is not None:
                hit = found
                break
        written = [mark for mark in marks if sizes[mark] // 4 >= ANTHROPIC_TOKENS]
        self._entries |= {entries[mark] for mark in written}
        total, read = (sizes[-1] if sizes else 0) // 4, sizes[hit] // 4 if hit >= 0 else 0
        last = sizes[max(written)] // 4 if written else 0
        return ScriptUsage(input=total - max(read, last), cache_read=read, cache_write=max(0, last - read))


def _is_anthropic(body: dict[str, Any]) -> bool:
    return "max_tokens" in body and not isinstance(body.get("system"), str) and "stream_options" not in body


def _list_blocks(body: dict[str, Any]) -> Iterator[tuple[str, bytes, bool]]:
    """Yield part, content without its mark, and whether it is marked, in the order that counts for the cache."""
    for part in ("tools", "system", "messages"):
        for item in body.get(part) or ():
            content = item.get("content") if part == "messages" else None
            for block in content if isinstance(content, list) else (item,):
                plain = {name: value for name, value in block.items() if name != "cache_control"}
                role = item.get("role", "").encode()
                yield part, role + orjson.dumps(plain), "cache_control" in block


def _render(*parts: Any) -> bytes:
    return b"".join(orjson.dumps(part) for part in parts)
