"""Builds prompts and the Request from flags, standard input, `@file` arguments and words, with size and time limits."""

import os
import select
import stat
import sys

from retinue.app import Request, SessionWish
from retinue.cli.options import Options
from retinue.core.errors import UsageError
from retinue.core.messages import ImageContent, TextContent, UserContent
from retinue.views.prompt_files import MAX_PROMPT_BYTES, decode_text, read_attachment

STDIN_WAIT_S = 3.0
"""Seconds to wait for a silent pipe on standard input when there is also a prompt."""


def collect_prompts(options: Options) -> list[list[UserContent]]:
    """Return one list of content blocks per prompt; the first includes standard input and files.

    None at all if an existing session is named: then its interrupted work is continued.
    """
    may_continue = bool(options.continue_ or options.session)
    piped = read_stdin(wait_s=STDIN_WAIT_S if options.prompts or options.files or may_continue else None)
    texts, images = list[str](), list[ImageContent]()
    for name in options.files:
        text, image = read_attachment(name)
        texts.append(text)
        if image is not None:
            images.append(image)
    words = list(options.prompts) or [""]
    for word in words:
        check_text(word, "the prompt")
    # pi joins standard input and prompt without a separator, which merges the last word of one with the first of the
    # other.
    first = "\n\n".join(filter(None, (piped.strip(), f"{''.join(texts)}{words[0]}")))
    if not first.strip() and not images and may_continue and not options.prompts:
        return []
    if not first.strip() and not images:
        raise UsageError('the prompt is empty; for example: retinue -p "What does this project do?"')
    if len(first.encode(errors="replace")) > MAX_PROMPT_BYTES:
        raise UsageError(
            f"the prompt has {len(first) / 1e6:.1f} MB and the limit is {MAX_PROMPT_BYTES // 2**20} MiB; "
            "save the text to a file and name its path in the prompt, so that the agent can read it in parts"
        )
    blocks: list[UserContent] = [TextContent(first), *images]
    rest: list[list[UserContent]] = [[TextContent(word)] for word in words[1:] if word.strip()]
    return [blocks, *rest]


def read_stdin(wait_s: float | None) -> str:
    """Text piped to standard input; empty for a terminal, a closed descriptor or a silent pipe."""
    try:
        mode = os.fstat(0).st_mode
        if os.isatty(0) or stat.S_ISCHR(mode):
            return ""
    except OSError:
        return ""
    if wait_s is not None and not stat.S_ISREG(mode) and not select.select((0,), (), (), wait_s)[0]:
        sys.stderr.write("retinue: standard input is open but sends nothing; continuing without it\n")
        return ""
    data = bytearray()
    while len(data) <= MAX_PROMPT_BYTES:
        try:
            piece = os.read(0, 1 << 16)
        except OSError as error:
            raise UsageError(f"cannot read standard input: {error.strerror}") from error
        if not piece:
            return decode_text(bytes(data), "standard input")
        data += piece
    raise UsageError(
        f"standard input is longer than {MAX_PROMPT_BYTES // 2**20} MiB; "
        "save it to a file and name its path in the prompt, so that the agent can read it in parts"
    )


def check_text(text: str, where: str) -> None:
    """Raises UsageError if an argument was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} is not UTF-8 text (character {error.start})") from error


def to_request(options: Options) -> Request:
    tools = () if options.no_tools else None if options.tools is None else _split(options.tools)
    return Request(
        model=options.model or None,
        provider=options.provider or None,
        api_key=options.api_key or None,
        thinking=options.thinking or None,  # type: ignore[arg-type]
        models=_split(options.models),
        session=_to_wish(options),
        agent=options.agent or None,
        tools=tools,
        exclude_tools=_split(options.exclude_tools),
        system_prompt=options.system_prompt,
        append_system_prompt=options.append_system_prompt,
        context_files=not options.no_context_files,
        skills=not options.no_skills,
        approve=True if options.approve else False if options.no_approve else None,
        offline=options.offline,
    )


def _to_wish(options: Options) -> SessionWish:
    where, name = options.session_dir, options.name
    if options.no_session:
        return SessionWish("none", name=name)
    if options.continue_:
        return SessionWish("newest", "", where, name)
    if options.session:
        return SessionWish("named", options.session, where, name)
    if options.session_id:
        return SessionWish("exact", options.session_id, where, name)
    return SessionWish("new", "", where, name)


def _split(names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
