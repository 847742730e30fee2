"""Builds the response plan for a scripted reply with its scripted fault, in one wire format."""

import base64
from collections.abc import Iterable

import orjson
from msgspec.structs import replace

from retinue.core.model import FailureKind
from retinue.models.script import (
    ScriptCall,
    ScriptError,
    ScriptFault,
    ScriptReply,
    ScriptText,
    ScriptThinking,
    ScriptUsage,
)
from retinue.testing.plan import (
    LAST_CHUNK,
    Close,
    Place,
    Repeat,
    Reset,
    ResponsePlan,
    Stall,
    Step,
    Wait,
    Write,
    add_bom,
    cut_events,
    find_offset,
    frame_chunk,
    render_head,
    render_response,
    split_body,
    to_crlf,
)
from retinue.testing.wire.base import Spoken, SpokenBlock, WireEvent, WireFormat, split_pieces

_STATUSES: dict[FailureKind, int] = {"rate": 429, "overloaded": 503, "auth": 401, "missing": 404}
_KINDS: dict[int, FailureKind] = {401: "auth", 403: "auth", 404: "missing", 429: "rate"}
_FAULTS: dict[FailureKind, str] = {
    "network": "reset",
    "timeout": "no_headers",
    "stalled": "stall",
    "truncated": "no_terminal",
    "protocol": "garbage",
}
_COMMENT = ": still here\n\n"
_RESET_DELAY_S = 0.01
"""Wait before a reset, which would otherwise overtake bytes that the client has not read yet."""
_PLACEHOLDER = "placeholder-of-a-huge-text"
_ABSURD = ScriptUsage(input=-7, output=10**15, cache_read=-1, cache_write=10**12)


def pick_fault(reply: ScriptReply, attempt: int) -> ScriptFault | ScriptError | None:
    """Return the fault of the nth attempt (from 0) of a reply."""
    troubles: list[ScriptFault | ScriptError] = [*reply.faults]
    if reply.error is not None:
        troubles.insert(0, reply.error)
    for trouble in troubles:
        if trouble.times is None or attempt < trouble.times:
            return trouble
        attempt -= trouble.times
    return None


def to_spoken(reply: ScriptReply, *, position: int, model: str, include_usage: bool = True) -> Spoken:
    """Fill in the defaults of a scripted reply."""
    blocks: list[SpokenBlock] = []
    for index, block in enumerate(reply.blocks):
        place = f"{position}_{index}"
        if type(block) is ScriptText:
            blocks.append(SpokenBlock("text", block.text))
        elif type(block) is ScriptThinking:
            signature = block.signature or base64.b64encode(f"signature_{place}".encode()).decode()
            blocks.append(SpokenBlock("thinking", block.thinking, signature=signature))
        elif type(block) is ScriptCall:
            call_id = f"call_{place}" if block.id is None else block.id
            arguments = orjson.dumps(block.arguments).decode()
            blocks.append(SpokenBlock("call", arguments, block.name, call_id, has_own_id=block.id is not None))
    return Spoken(
        position=position,
        model=model,
        blocks=tuple(blocks),
        usage=reply.usage_or_default,
        stop=reply.stop_or_default,
        raw_stop=reply.raw_stop,
        chunk_chars=reply.chunk_chars,
        include_usage=include_usage,
    )


def build_plan(
    wire: WireFormat, reply: ScriptReply, spoken: Spoken, trouble: ScriptFault | ScriptError | None, *, stream: bool
) -> ResponsePlan:
    if isinstance(trouble, ScriptError):
        trouble, spoken, place = _to_fault(wire, trouble, spoken, has_content=bool(reply.blocks), stream=stream)
    else:
        place = None if trouble is None else trouble.at
    if trouble is None:
        steps = _build_body(wire, reply, spoken, stream=stream)
    elif (refusal := _build_refusal(wire, trouble)) is not None:
        steps = refusal
    elif place == "head":
        steps = _build_break(trouble)
    elif trouble.kind == "huge":
        steps = _build_huge(wire, spoken, trouble, stream=stream)
    else:
        steps = _build_faulty(wire, reply, _spoil(spoken, trouble), trouble, place, stream=stream)
    if reply.delay_ms:
        steps = [Wait(reply.delay_ms / 1000), *steps]
    if trouble is not None and trouble.kind in ("split", "trickle"):
        # The number of writes matters here, so they are not joined.
        return ResponsePlan(steps=tuple(steps))
    return ResponsePlan.of(steps)


def build_error(wire: WireFormat, kind: FailureKind, status: int, message: str) -> ResponsePlan:
    return ResponsePlan(render_response(status, wire.render_error(kind, status, message)))


def _to_fault(
    wire: WireFormat, error: ScriptError, spoken: Spoken, *, has_content: bool, stream: bool
) -> tuple[ScriptFault | None, Spoken, Place | None]:
    """Convert a scripted error to the fault that causes it in a client."""
    # With content and no number of attempts, the error comes after the content.
    place: Place = "end" if has_content and error.times is None else "first_byte"
    kind = error.kind
    if kind == "refused":
        return None, replace(spoken, stop="refusal"), None
    if kind in _FAULTS:
        return ScriptFault(kind=_FAULTS[kind]), spoken, "head" if kind == "network" and place != "end" else place
    if place == "end" and stream:
        return ScriptFault(kind="error_event", error=kind, message=error.message), spoken, place
    code = error.status or _STATUSES.get(kind, 400)
    headers = {} if error.retry_after_s is None else {"retry-after": f"{error.retry_after_s:g}"}
    body = wire.render_error(kind, code, error.message).decode()
    return ScriptFault(kind="status", code=code, headers=headers, body=body), spoken, None


def _build_refusal(wire: WireFormat, fault: ScriptFault) -> list[Step] | None:
    """Return the steps of a fault that replaces the reply; None if it does not."""
    if fault.kind == "no_headers":
        return [Stall()]
    if fault.kind == "redirect":
        location = (fault.location or "/redirected").encode()
        return [Write(render_response(fault.code or 307, b"", [(b"location", location)]))]
    if fault.kind == "status":
        code = fault.code or 500
        kind = _KINDS.get(code, "overloaded" if code >= 500 else "request")
        message = f"scripted status {code}"
        body = wire.render_error(kind, code, message) if fault.body is None else fault.body.encode()
        headers = [(name.encode(), value.encode()) for name, value in fault.headers.items()]
        return [Write(render_response(code, body, [(wire.request_id, b"req_mock"), *headers]))]
    return None


def _build_break(fault: ScriptFault) -> list[Step]:
    if fault.kind == "reset":
        return [Wait(_RESET_DELAY_S), Reset()]
    if fault.kind == "close":
        return [Close()]
    return [Stall()]


def _spoil(spoken: Spoken, fault: ScriptFault) -> Spoken:
    """Apply faults of the content."""
    blocks = spoken.blocks
    if fault.kind == "no_usage":
        return replace(spoken, usage=None)
    if fault.kind == "absurd_usage":
        return replace(spoken, usage=fault.usage or _ABSURD)
    if fault.kind == "empty":
        kept = () if fault.text is None else (SpokenBlock("text", fault.text),)
        return replace(spoken, blocks=kept, usage=ScriptUsage(), stop="stop")
    if fault.kind == "duplicate_ids":
        same = (replace(block, id=fault.id, has_own_id=True) if block.kind == "call" else block for block in blocks)
        return replace(spoken, blocks=tuple(same))
    if fault.kind == "bad_args":
        bad = _bad_arguments(fault)
        spoiled = (replace(block, text=bad) if block.kind == "call" else block for block in blocks)
        return replace(spoken, blocks=tuple(spoiled))
    if fault.at in ("mid_text", "mid_args"):
        # Only text that is sent in at least two pieces has a middle.
        kind = "text" if fault.at == "mid_text" else "call"
        half = max(1, (next((len(block.text) for block in blocks if block.kind == kind), 2) + 1) // 2)
        return replace(spoken, chunk_chars=min(spoken.chunk_chars or half, half))
    return spoken


def _bad_arguments(fault: ScriptFault) -> str:
    if fault.text is not None:
        return fault.text
    if fault.depth:
        return '{"path":' + "[" * fault.depth + "]" * fault.depth + "}"
    if fault.size:
        return '{"path":"' + "x" * fault.size + '"}'
    return '{"path": "cut o'


def _stream_head(wire: WireFormat, spoken: Spoken) -> bytes:
    return render_head(
        200,
        [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-cache"),
            (wire.request_id, b"req_mock_%d" % spoken.position),
            (b"transfer-encoding", b"chunked"),
        ],
    )


def _plain_response(wire: WireFormat, spoken: Spoken, body: bytes) -> bytes:
    return render_response(200, body, [(wire.request_id, b"req_mock_%d" % spoken.position)])


def _build_body(wire: WireFormat, reply: ScriptReply, spoken: Spoken, *, stream: bool) -> list[Step]:
    if not stream:
        return [*_whole_wait(reply, spoken), Write(_plain_response(wire, spoken, wire.render_plain(spoken)))]
    events = wire.render_stream(spoken)
    framed = [(frame_chunk(event.data), event.is_piece) for event in events]
    steps = [Write(_stream_head(wire, spoken)), *_pace(framed, reply.chunk_ms)]
    return [*steps, Write(LAST_CHUNK)]


def _whole_wait(reply: ScriptReply, spoken: Spoken) -> list[Step]:
    """Make a reply in one body take as long as its pieces would."""
    if not reply.chunk_ms:
        return []
    pieces = sum(len(split_pieces(block.text, spoken.chunk_chars)) for block in spoken.blocks)
    return [Wait(reply.chunk_ms / 1000 * max(0, pieces - 1))]


def _pace(framed: Iterable[tuple[bytes, bool]], chunk_ms: float) -> list[Step]:
    steps: list[Step] = []
    is_first = True
    for data, is_piece in framed:
        if is_piece and chunk_ms and not is_first:
            steps.append(Wait(chunk_ms / 1000))
        is_first = is_first and not is_piece
        steps.append(Write(data))
    return steps


def _build_huge(wire: WireFormat, spoken: Spoken, fault: ScriptFault, *, stream: bool) -> list[Step]:
    """Send a long text as the same bytes many times, so that it is never held in memory."""
    filler = "x" * fault.chunk_chars
    count = max(1, int(fault.mb * 1_000_000) // fault.chunk_chars)
    rest = (block for block in spoken.blocks if block.kind != "text")
    short = replace(spoken, blocks=(SpokenBlock("text", _PLACEHOLDER), *rest), chunk_chars=0)
    if not stream:
        body = wire.render_plain(short)
        promised = _plain_response(wire, short, b"")[:-4].removesuffix(b"content-length: 0")
        size, steps = _swell(body, filler, count)
        return [Write(promised + b"content-length: %d\r\n\r\n" % size), *steps]
    steps = [Write(_stream_head(wire, spoken))]
    for event in wire.render_stream(short):
        if event.mark == "text":
            steps.append(Repeat(frame_chunk(wire.render_text_piece(short, filler)), count))
        else:
            size, swollen = _swell(event.data, filler, count)
            steps += [Write(b"%x\r\n" % size), *swollen, Write(b"\r\n")]
    return [*steps, Write(LAST_CHUNK)]


def _swell(data: bytes, filler: str, count: int) -> tuple[int, list[Step]]:
    """Put the long text in place of its placeholder; also return the total size."""
    first, *others = data.split(_PLACEHOLDER.encode())
    steps: list[Step] = [Write(first)]
    for part in others:
        steps += [Repeat(filler.encode(), count), Write(part)]
    size = len(data) + len(others) * (len(filler) * count - len(_PLACEHOLDER))
    return size, steps


def _build_faulty(
    wire: WireFormat,
    reply: ScriptReply,
    spoken: Spoken,
    fault: ScriptFault,
    place: Place | None,
    *,
    stream: bool,
) -> list[Step]:
    """Build a reply with a fault in its body."""
    events = wire.render_stream(spoken) if stream else [WireEvent(wire.render_plain(spoken), "last", True)]
    if fault.kind == "bom":
        events = add_bom(events)
    elif fault.kind == "crlf":
        events = to_crlf(events, mix=fault.mix)
    elif fault.kind == "no_terminal" and (place is None or (place == "last_byte" and stream)):
        # A stream cut in its last line might still parse completely, so drop the whole last event.
        place = "end" if place is None else sum(len(event.data) for event in events[:-1])
    before, after = cut_events(events, find_offset(events, "first_byte" if place is None else place))
    if not stream:
        return _build_faulty_plain(wire, spoken, fault, before, after)
    steps: list[Step] = [Write(_stream_head(wire, spoken))]
    steps += _pace(((frame_chunk(event.data), event.is_piece) for event in before), reply.chunk_ms)
    if fault.kind not in ("split", "trickle"):
        return [*steps, *_build_rest(wire, fault, after)]
    rest = b"".join(event.data for event in after)
    is_split = fault.kind == "split"
    for piece in split_body(rest, fault.sizes if is_split else 1, fault.seed if is_split else None):
        # Without a pause the kernel would join the pieces again.
        steps += [Write(frame_chunk(piece)), Wait(_find_pause_s(fault))]
    return [*steps, Write(LAST_CHUNK)]


def _find_pause_s(fault: ScriptFault) -> float:
    return (fault.interval_ms or (1000 if fault.kind == "trickle" else 0)) / 1000


def _build_rest(wire: WireFormat, fault: ScriptFault, after: list[WireEvent]) -> list[Step]:
    """Return the steps of a stream after the place of its fault."""
    if fault.kind in ("reset", "close", "stall"):
        return _build_break(fault)
    if fault.kind == "comments":
        return [Repeat(frame_chunk((fault.text or _COMMENT).encode()), interval_s=(fault.interval_ms or 50) / 1000)]
    if fault.kind == "no_terminal":
        return [Write(LAST_CHUNK)]
    if fault.kind == "error_event":
        code = _STATUSES.get(fault.error, 400)
        events = wire.render_error_events(fault.error, code, _find_message(fault))
        return [*(Write(frame_chunk(event)) for event in events), Write(LAST_CHUNK)]
    if fault.kind == "garbage":
        garbage = frame_chunk(_garbage(fault))
        kept = after if fault.then == "continue" else []
        return [Write(garbage), *(Write(frame_chunk(event.data)) for event in kept), Write(LAST_CHUNK)]
    return [*(Write(frame_chunk(event.data)) for event in after), Write(LAST_CHUNK)]


def _build_faulty_plain(
    wire: WireFormat,
    spoken: Spoken,
    fault: ScriptFault,
    before: list[WireEvent],
    after: list[WireEvent],
) -> list[Step]:
    sent = b"".join(event.data for event in before)
    rest = b"".join(event.data for event in after)
    whole = _plain_response(wire, spoken, sent + rest)
    promised = whole[: len(whole) - len(rest)]
    if fault.kind in ("reset", "close", "stall", "comments"):
        return [Write(promised), *_build_break(fault)]
    if fault.kind in ("split", "trickle"):
        pause = Wait(_find_pause_s(fault))
        pieces = split_body(rest, fault.sizes, fault.seed)
        return [Write(promised), *(step for piece in pieces for step in (Write(piece), pause))]
    body = sent + rest
    if fault.kind == "no_terminal":
        body = sent
    elif fault.kind == "garbage":
        body = sent + _garbage(fault) + (rest if fault.then == "continue" else b"")
    elif fault.kind == "error_event":
        body = wire.render_error(fault.error, _STATUSES.get(fault.error, 400), _find_message(fault))
    return [Write(_plain_response(wire, spoken, body))]


def _find_message(fault: ScriptFault) -> str:
    return fault.message or f"scripted failure: {fault.error}"


def _garbage(fault: ScriptFault) -> bytes:
    return b'data: {"type": \xff\xfe not json\n\n' if fault.text is None else fault.text.encode()
