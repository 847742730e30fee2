"""Budgets that hold: what a model call may cost is taken out of the lease before it is sent, and settled after it.

A child draws on its parent's lease, so that a whole tree never spends more than its root was given. What others only
hold is waited for: most of it comes back. The model port is wrapped; the loop knows nothing of it. The first lease of
a process may draw on something above: on the lease of the run that another process has started it for, or on those
that runs on several machines share.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, structs

from retinue.core.jsonline import encode_json
from retinue.core.messages import AssistantMessage, Cost, ImageContent, Message, Usage, read_content
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Price, PriceTier, Reply
from retinue.engine.clock import make_uuid

MIN_OUTPUT = 256
"""A reply shorter than this is not worth asking for."""
IMAGE_TOKENS = 6_000


class Hold(Struct, frozen=True):
    """What is set aside for one reply."""

    tokens: int
    usd: float
    output: int
    """Tokens that the reply may have."""
    number: int = 0
    """The same hold in the source above; 0 where there is none."""


class Source(Protocol):
    """The budget that the first lease of a process draws on."""

    @property
    def is_limit(self) -> bool:
        """Whether it bounds leases that have no limit of their own."""
        ...

    @property
    def rest(self) -> tuple[float, float]:
        """Tokens and dollars that were left when it was last heard of."""
        ...

    async def reserve(self, price: Price, size: int, wanted: int, keys: Sequence[str]) -> tuple[int, int]:
        """Set aside the most a reply can cost: the number of the hold, and the tokens of output it covers or 0.

        `keys` are those of the leases with a limit that are drawn on here.
        """
        ...

    async def settle(self, number: int, used: Usage) -> None:
        """Give a hold back and note what was used."""
        ...


class Lease:
    """What a run and all its descendants may still spend; None is no limit."""

    def __init__(
        self,
        tokens: int | None = None,
        cost_usd: float | None = None,
        parent: "Lease | None" = None,
        source: Source | None = None,
    ) -> None:
        self.tokens = tokens
        self.cost_usd = cost_usd
        self.parent = parent
        self._source = source
        self.spent = Usage()
        self._key = ""
        self._held_tokens = 0
        self._held_usd = 0.0
        self.turn = asyncio.Lock()
        """Of the first lease: whoever wants to hold something does it in turn, so that none waits for ever."""
        self._settled = asyncio.Event()

    @property
    def root(self) -> "Lease":
        """The first of those above, or this one."""
        return self if self.parent is None else self.parent.root

    def left(self, *, held: bool = False) -> tuple[float, float]:
        """Tokens and dollars that are neither spent nor held, here and above; with `held` also those that are."""
        held_tokens, held_usd = (0, 0.0) if held else self.held
        tokens = float("inf") if self.tokens is None else self.tokens - self.spent.total_tokens - held_tokens
        usd = float("inf") if self.cost_usd is None else self.cost_usd - self.spent.cost.total - held_usd
        if self.parent is None:
            return tokens, usd
        above_tokens, above_usd = self.parent.left(held=held)
        return min(tokens, above_tokens), min(usd, above_usd)

    async def wait_settled(self) -> None:
        """Wait until something below the first lease is settled; for whoever has the turn."""
        self.root._settled.clear()
        await self.root._settled.wait()

    @property
    def held(self) -> tuple[int, float]:
        """Tokens and dollars set aside for calls under way."""
        return self._held_tokens, self._held_usd

    @property
    def has_limit(self) -> bool:
        """Whether it has a limit of its own."""
        return self.tokens is not None or self.cost_usd is not None

    @property
    def key(self) -> str:
        """Its name where others share it: another one for each prompt."""
        if not self._key:
            self._key = make_uuid()
        return self._key

    @property
    def is_limited(self) -> bool:
        """Whether anything, here or above, has a limit."""
        above = self.parent
        is_bound = self._source is not None and self._source.is_limit
        return self.has_limit or is_bound or (above is not None and above.is_limited)

    def list_limited(self) -> "list[Lease]":
        """Those with a limit of their own: this one, and those above."""
        above = [] if self.parent is None else self.parent.list_limited()
        return [self, *above] if self.has_limit else above

    def draw_on(self, source: Source) -> None:
        """Ask this one, too, from now on; for a first lease."""
        self._source = source

    async def reserve(self, price: Price, size: int, wanted: int) -> Hold | None:
        """Set aside the most that a reply to `size` tokens can cost, shortened to what is left; None: too little is."""
        root = self.root

        def fit(*, held: bool = False) -> int:
            return fit_output(price, size, wanted, *self.left(held=held))

        async with root.turn:
            while (output := fit()) < MIN_OUTPUT <= fit(held=True):
                await self.wait_settled()
            hold = Hold(size + output, bound_price(price, size, output), output)
            if output < MIN_OUTPUT or not self.hold(hold.tokens, hold.usd):
                return None
        if root._source is None:
            return hold
        kept = Hold(0, 0.0, 0)
        try:
            keys = [lease.key for lease in self.list_limited()]
            number, output = await root._source.reserve(price, size, output, keys)
            if output:
                kept = Hold(size + output, bound_price(price, size, output), output, number)
        finally:
            self.settle(hold.tokens - kept.tokens, hold.usd - kept.usd, Usage())
        return kept if kept.output else None

    async def release(self, hold: Hold, used: Usage) -> None:
        """Settle what was reserved, in the source above, too."""
        self.settle(hold.tokens, hold.usd, used)
        if self.root._source is not None:
            await self.root._source.settle(hold.number, used)

    def hold(self, tokens: int, usd: float) -> bool:
        """Set something aside, here and above; False, and nothing is held, when it is not there."""
        left_tokens, left_usd = self.left()
        if tokens > left_tokens or usd > left_usd:
            return False
        lease: Lease | None = self
        while lease is not None:
            lease._held_tokens += tokens
            lease._held_usd += usd
            lease = lease.parent
        return True

    def settle(self, tokens: int, usd: float, used: Usage) -> None:
        """Give back what was held and note what was used."""
        lease: Lease | None = self
        while lease is not None:
            lease._held_tokens -= tokens
            lease._held_usd -= usd
            lease.spent += used
            lease = lease.parent
        self.root._settled.set()

    def renew(self) -> None:
        """A new prompt: nothing is spent yet; what is held by calls still under way stays held."""
        self.spent, self._key = Usage(), ""
        self.root._settled.set()

    def repeat(self) -> "Lease":
        """The same limits for work that is not part of this: nothing is spent, and nothing is above it."""
        return Lease(self.tokens, self.cost_usd, source=self._source)

    def render_rest(self) -> str:
        """What is left, for the model to read; empty without a limit."""
        tokens, usd = self.left()
        above = (tokens, usd) if self.root._source is None else self.root._source.rest
        return render_rest(min(tokens, above[0]), min(usd, above[1]))


class Leases:
    """Those of every run of one main agent so far: what one had bounds its children, and itself when it is resumed."""

    def __init__(self, main: Lease) -> None:
        """`main` is what one main prompt may spend with all it starts."""
        self._main = main
        self._leases: dict[str, Lease] = {}

    def open(self, run_id: str, above: str | None, tokens: int | None, cost_usd: float | None) -> Lease:
        """The lease of a run that begins, below that of the run `above`; with None it is no part of the main prompt."""
        parent = self._main.repeat() if above is None else self._leases.get(above, self._main)
        self._leases[run_id] = lease = Lease(tokens, cost_usd, parent)
        return lease

    def find(self, run_id: str) -> Lease:
        """The lease of a run that has begun."""
        return self._leases[run_id]

    def charge(self, run_id: str, usage: Usage) -> None:
        """What an earlier process has spent on a run that goes on counts, here and above."""
        self._leases[run_id].settle(0, 0.0, usage)

    def forget(self, run_id: str) -> None:
        """Keep nothing of a run."""
        self._leases.pop(run_id, None)


class BudgetedModel:
    """A model that is only asked when its lease covers the answer."""

    def __init__(self, model: Model, lease: Lease) -> None:
        self.inner_model = model
        self._lease = lease

    @property
    def info(self) -> ModelInfo:
        """The model's own."""
        return self.inner_model.info

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Hold the most the reply can cost, shorten it to what is left, ask, settle."""
        lease, info = self._lease, self.inner_model.info
        if not lease.is_limited:
            return await self.inner_model.reply(request, draft)
        needed = bound_input(request)
        hold = await lease.reserve(info.cost, needed, request.max_tokens or info.max_tokens)
        if hold is None:
            failure = Failure("budget", explain_end(lease.render_rest(), needed))
            return Reply(draft.finish("error", error=failure.message), failure)
        # Of a call that is cut off the provider may have counted all, and a budget errs on the safe side.
        used = Usage(total_tokens=hold.tokens, cost=Cost(total=hold.usd))
        try:
            reply = await self.inner_model.reply(structs.replace(request, max_tokens=hold.output), draft)
            told = reply.message.usage
            if reply.failure is None or not draft.has_content or told.total_tokens:
                used = told
        finally:
            await lease.release(hold, used)
        return reply


def explain_end(rest: str, needed: int) -> str:
    """Why a model is not asked any more."""
    return f"the budget does not cover the next request: {rest or 'nothing'} left, and it may have {needed} tokens"


def render_rest(tokens: float, usd: float) -> str:
    """What is left of a budget; empty without a limit."""
    parts = [f"{tokens:.0f} tokens"] if tokens != float("inf") else []
    parts += [f"${usd:.4f}"] if usd != float("inf") else []
    return " and ".join(parts)


def bound_input(request: ModelRequest) -> int:
    """More tokens than the request can have: what the provider counted last, and one per byte of what is new."""
    messages = request.messages
    for place in reversed(range(len(messages))):
        message = messages[place]
        if isinstance(message, AssistantMessage) and message.usage.total_tokens:
            return message.usage.total_tokens + _count_bytes(messages[place + 1 :]) + 64
    tools = sum(len(encode_json(spec)) for spec in request.tools)
    return len(request.system.encode()) + tools + _count_bytes(messages) + 256


def _count_bytes(messages: Sequence[Message]) -> int:
    total = 0
    for message in messages:
        total += 16
        content = read_content(message)
        if isinstance(content, str):
            total += len(content.encode(errors="replace"))
            continue
        for block in content:
            total += IMAGE_TOKENS if isinstance(block, ImageContent) else len(encode_json(block))
    return total


def fit_output(price: Price, size: int, wanted: int, tokens: float, usd: float) -> int:
    """As many of the wanted tokens of output as these tokens and dollars cover."""
    output, spare = min(wanted, tokens - size), usd - bound_price(price, size, 0)
    dearest = bound_price(price, 0, 1)
    if dearest > 0 and spare != float("inf"):
        output = min(output, spare / dearest)
    return max(0, int(output)) if spare >= 0 else 0


def bound_price(price: Price, size: int, output: int) -> float:
    """The most these tokens can cost: cache writes are dearer than plain input, tiers dearer than the base."""
    rows: list[Price | PriceTier] = [price, *price.tiers]
    into = max(max(row.input, row.cache_write, row.cache_read) for row in rows)
    out = max(row.output for row in rows)
    return (size * into + output * out) / 1_000_000
