"""Renders one conversation as HTML: messages, tool calls and results. All text is escaped."""

import html
import json
from collections.abc import Iterable
from functools import cache
from typing import Any

from retinue.core.figures import format_cost, format_tokens
from retinue.core.messages import (
    AssistantMessage,
    BashExecutionMessage,
    BranchSummaryMessage,
    CompactionSummaryMessage,
    CustomMessage,
    ImageContent,
    Message,
    SystemMessage,
    TextContent,
    ThinkingContent,
    ToolCall,
    ToolResultMessage,
    UserMessage,
)
from retinue.core.terminal import escape_text

_MOST_CHARS = 400_000


def escape(text: str) -> str:
    """Escape text for HTML, including attributes; control characters are made visible."""
    return html.escape(escape_text(text), quote=True)


def cut_line(text: str, limit: int) -> str:
    """One line, cut to the limit."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def render_prose(text: str) -> str:
    """Render Markdown as HTML."""
    if len(text) > _MOST_CHARS:
        return f"<pre>{escape(text)}</pre>"
    rendered: str = _open_renderer().render(escape_text(text))
    return rendered


def render_pre(text: str) -> str:
    return f"<pre>{escape(text)}</pre>" if text else ""


@cache
def _open_renderer() -> Any:
    from markdown_it import MarkdownIt

    # Raw HTML is shown as text. Images are disabled because the browser would fetch them when the page is opened.
    renderer = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    renderer.add_render_rule("link_open", _open_link)
    return renderer


def _open_link(renderer: Any, tokens: Any, index: int, options: Any, environment: Any) -> str:
    target = str(tokens[index].attrGet("href") or "")
    if not target.lower().startswith(("http://", "https://", "#", "mailto:")):
        return f'<a title="{escape(target)}">'
    return f'<a href="{escape(target)}" title="{escape(target)}" rel="noopener noreferrer nofollow">'


_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST_RESULT = 200_000
_DATA = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n")


def render_messages(messages: Iterable[Message]) -> str:
    listed = list(messages)
    results = {message.tool_call_id: message for message in listed if isinstance(message, ToolResultMessage)}
    called = {call.id for message in listed if isinstance(message, AssistantMessage) for call in message.calls}
    return "\n".join(filter(None, (_render(message, results, called) for message in listed)))


def _render(message: Message, results: dict[str, ToolResultMessage], called: set[str]) -> str:
    match message:
        case UserMessage():
            return _box("user", "user", _render_content(message.shown))
        case AssistantMessage():
            return _render_reply(message, results)
        case ToolResultMessage() if message.tool_call_id not in called:
            return _box("tool", message.tool_name, _render_result(message))
        case CustomMessage(display=True):
            return _fold("note", _name_note(message), _render_content(message.content, is_prose=False))
        case BashExecutionMessage():
            return _box("tool", f"$ {message.command}", render_pre(message.output))
        case CompactionSummaryMessage() | BranchSummaryMessage():
            is_branch = isinstance(message, BranchSummaryMessage)
            head = "summary of an abandoned branch" if is_branch else "summary of the earlier conversation"
            return _fold("note", head, render_prose(message.summary))
        case SystemMessage(sections=dict() as sections):
            text = "\n\n".join(text for text in sections.values() if text)
            return _fold("system", "system prompt", render_pre(text)) if text else ""
        case _:
            return ""


def _name_note(message: CustomMessage) -> str:
    details = message.details if isinstance(message.details, dict) else {}
    if "description" not in details:
        return message.custom_type
    others = details.get("others")
    runs = [details, *(others if isinstance(others, list) else [])]
    told = [f"{run.get('description')} {run.get('status', '')}".strip() for run in runs if isinstance(run, dict)]
    return f"finished: {'; '.join(told)}"


def _render_reply(message: AssistantMessage, results: dict[str, ToolResultMessage]) -> str:
    parts = []
    for block in message.content:
        match block:
            case TextContent() if block.text.strip():
                parts.append(f'<div class="prose">{render_prose(block.text)}</div>')
            case ThinkingContent() if block.thinking.strip():
                parts.append(_fold("thinking", "thinking", render_pre(block.thinking)))
            case ToolCall():
                parts.append(_render_call(block, results.get(block.id)))
            case _:
                pass
    if isinstance(message.error_message, str):
        parts.append(f'<p class="error">{escape(message.error_message)}</p>')
    usage = message.usage
    facts = [f"{message.provider}/{message.model}", f"↑{format_tokens(usage.input + usage.cache_write)}"]
    facts += [f"↓{format_tokens(usage.output)}", format_cost(usage.cost.total)]
    return _box("assistant", " ".join(filter(None, facts)), "\n".join(parts))


def _render_call(call: ToolCall, result: ToolResultMessage | None) -> str:
    about = next((v for v in call.arguments.values() if isinstance(v, str)), "")
    line = cut_line(about, 140)
    state = "" if result is None else " failed" if result.is_error else " done"
    arguments = render_pre(json.dumps(call.arguments, indent=2, ensure_ascii=False, default=str))
    body = arguments + ("<p>no result</p>" if result is None else _render_result(result))
    return f'<details class="call{state}"><summary><b>{escape(call.name)}</b> {escape(line)}</summary>{body}</details>'


def _render_result(result: ToolResultMessage) -> str:
    details = result.details if isinstance(result.details, dict) else {}
    diff = details.get("diff")
    extra = _render_changes(details) + (render_pre(diff) if isinstance(diff, str) and diff else "")
    return extra + _render_content(result.content, is_prose=False)


def _render_changes(details: dict[str, Any]) -> str:
    """Render the changes that hooks made to a call's arguments and result."""
    parts = []
    for key, words in (("modifiedInput", "arguments changed by"), ("modifiedOutput", "result changed by")):
        change = details.get(key)
        if isinstance(change, dict) and isinstance(change.get("by"), list):
            parts.append(f"<p>{words} {escape(', '.join(map(str, change['by'])))}</p>")
            if "args" in change:
                parts.append(render_pre(json.dumps(change["args"], indent=2, ensure_ascii=False, default=str)))
    return "\n".join(parts)


def _render_content(content: Any, *, is_prose: bool = True) -> str:
    if isinstance(content, str):
        return render_prose(content) if is_prose else render_pre(content)
    parts = []
    for block in content:
        if isinstance(block, ImageContent):
            parts.append(_render_image(block))
        elif isinstance(block, TextContent):
            parts.append(render_prose(block.text) if is_prose else render_pre(_shorten(block.text)))
    return "\n".join(parts)


def _shorten(text: str) -> str:
    """Cut a long result after a line, and say how many lines are left out."""
    if len(text) <= _MOST_RESULT:
        return text
    kept = text[:_MOST_RESULT].rpartition("\n")[0] or text[:_MOST_RESULT]
    lines = len(text[len(kept) :].removeprefix("\n").splitlines())
    return f"{kept}\n… {lines} more line{'s' if lines != 1 else ''}"


def _render_image(image: ImageContent) -> str:
    if image.mime_type not in _IMAGES or not _DATA.issuperset(image.data):
        return f"<p>[{escape(image.mime_type)}]</p>"
    return f'<img alt="image" src="data:{image.mime_type};base64,{image.data}">'


def _box(kind: str, head: str, body: str) -> str:
    return f'<section class="message {kind}"><header>{escape(head)}</header>{body}</section>'


def _fold(kind: str, head: str, body: str) -> str:
    return f'<details class="message {kind}"><summary>{escape(head)}</summary>{body}</details>'
