"""Hard budgets: the highest possible price of a model call is reserved before it is sent, and settled after it.

A child draws on its parent's lease, so a whole tree never spends more than its root was given. Amounts that are only
reserved are waited for, since most of them are returned. The model is wrapped; the loop does not know budgets. The
first lease of a process may draw on a source: the lease of a run in another process, or leases shared by several
machines.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct, structs

from retinue.core.jsonline import encode_json
from retinue.core.messages import AssistantMessage, Cost, ImageContent, Message, Usage, read_content
from retinue.core.model import Draft, Failure, Model, ModelInfo, ModelRequest, Price, PriceTier, Reply
from retinue.engine.clock import make_uuid
from retinue.engine.model_choice import WrappedModel

MIN_OUTPUT = 256
"""A shorter reply is not worth asking for."""
IMAGE_TOKENS = 6_000


class Hold(Struct, frozen=True):
    """What is reserved for one reply."""

    tokens: int
    usd: float
    output: int
    """Maximum tokens of the reply."""
    number: int = 0
    """Id of the reservation in the source; 0 without a source."""


class Source(Protocol):
    """The budget that the first lease of a process draws on."""

    @property
    def is_limit(self) -> bool:
        """Whether it limits leases that have no limit of their own."""
        ...

    @property
    def rest(self) -> tuple[float, float]:
        """Tokens and dollars that were left at the last contact."""
        ...

    async def reserve(self, price: Price, size: int, wanted: int, keys: Sequence[str]) -> tuple[int, int]:
        """Reserve the highest possible price of a reply; return the reservation's id and the tokens of output, or 0.

        `keys` are those of the local leases that have a limit.
        """
        ...

    async def settle(self, number: int, used: Usage) -> None:
        """Return a reservation and record what was used."""
        ...


class Lease:
    """What a run and all its descendants may still spend. None means no limit."""

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
        """Lock of the first lease: callers reserve in order, so that none waits forever."""
        self._settled = asyncio.Event()

    @property
    def root(self) -> "Lease":
        """The topmost lease, or this one."""
        return self if self.parent is None else self.parent.root

    def left(self, *, held: bool = False) -> tuple[float, float]:
        """Return the available tokens and dollars, here and above; with `held` including reserved ones."""
        held_tokens, held_usd = (0, 0.0) if held else self.held
        tokens = float("inf") if self.tokens is None else self.tokens - self.spent.total_tokens - held_tokens
        usd = float("inf") if self.cost_usd is None else self.cost_usd - self.spent.cost.total - held_usd
        if self.parent is None:
            return tokens, usd
        above_tokens, above_usd = self.parent.left(held=held)
        return min(tokens, above_tokens), min(usd, above_usd)

    async def wait_settled(self) -> None:
        """Wait until a reservation in the tree is settled. The caller must hold `turn`."""
        self.root._settled.clear()
        await self.root._settled.wait()

    @property
    def held(self) -> tuple[int, float]:
        """Tokens and dollars reserved for calls in progress."""
        return self._held_tokens, self._held_usd

    @property
    def has_limit(self) -> bool:
        return self.tokens is not None or self.cost_usd is not None

    @property
    def key(self) -> str:
        """Its name where others share it; new for each prompt."""
        if not self._key:
            self._key = make_uuid()
        return self._key

    @property
    def is_limited(self) -> bool:
        """Whether this lease, one above it, or the source has a limit."""
        above = self.parent
        is_bound = self._source is not None and self._source.is_limit
        return self.has_limit or is_bound or (above is not None and above.is_limited)

    def list_limited(self) -> "list[Lease]":
        above = [] if self.parent is None else self.parent.list_limited()
        return [self, *above] if self.has_limit else above

    def draw_on(self, source: Source) -> None:
        """Use this source from now on; only for a first lease."""
        self._source = source

    async def reserve(self, price: Price, size: int, wanted: int) -> Hold | None:
        """Reserve the highest price of a reply to `size` tokens, cut to what is left; None if that is not enough."""
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
        """Settle a reservation here and in the source."""
        self.settle(hold.tokens, hold.usd, used)
        if self.root._source is not None:
            await self.root._source.settle(hold.number, used)

    def hold(self, tokens: int, usd: float) -> bool:
        """Reserve an amount here and above; False, with nothing reserved, if it is not available."""
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
        """Return a reserved amount and record what was used."""
        lease: Lease | None = self
        while lease is not None:
            lease._held_tokens -= tokens
            lease._held_usd -= usd
            lease.spent += used
            lease = lease.parent
        self.root._settled.set()

    def renew(self) -> None:
        """Reset what was spent for a new prompt; reservations of calls in progress stay."""
        self.spent, self._key = Usage(), ""
        self.root._settled.set()

    def repeat(self) -> "Lease":
        """Return an unspent lease with the same limits and no parent, for work that is not part of this prompt."""
        return Lease(self.tokens, self.cost_usd, source=self._source)

    def render_rest(self) -> str:
        """Describe what is left, for the model; empty without a limit."""
        tokens, usd = self.left()
        above = (tokens, usd) if self.root._source is None else self.root._source.rest
        return render_rest(min(tokens, above[0]), min(usd, above[1]))


class Leases:
    """The leases of all runs of one main agent; kept after a run ended, for its children and for resuming it."""

    def __init__(self, main: Lease) -> None:
        """`main` is the budget of one main prompt, including all runs it starts."""
        self._main = main
        self._leases: dict[str, Lease] = {}

    def open(self, run_id: str, above: str | None, tokens: int | None, cost_usd: float | None) -> Lease:
        """Create the lease of a run below that of the run `above`; None: it is not part of the main prompt."""
        parent = self._main.repeat() if above is None else self._leases.get(above, self._main)
        self._leases[run_id] = lease = Lease(tokens, cost_usd, parent)
        return lease

    def find(self, run_id: str) -> Lease:
        return self._leases[run_id]

    def charge(self, run_id: str, usage: Usage) -> None:
        """Count what an earlier process spent on a continued run, here and above."""
        self._leases[run_id].settle(0, 0.0, usage)

    def forget(self, run_id: str) -> None:
        self._leases.pop(run_id, None)


class BudgetedModel(WrappedModel):
    """A model that is asked only if its lease covers the reply."""

    def __init__(self, model: Model, lease: Lease) -> None:
        self.inner_model = model
        self._lease = lease

    @property
    def info(self) -> ModelInfo:
        return self.inner_model.info

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        """Reserve the highest price of the reply, shorten the reply to what is left, ask, and settle."""
        lease, info = self._lease, self.inner_model.info
        if not lease.is_limited:
            return await self.inner_model.reply(request, draft)
        needed = bound_input(request)
        hold = await lease.reserve(info.cost, needed, request.max_tokens or info.max_tokens)
        if hold is None:
            failure = Failure("budget", explain_end(lease.render_rest(), needed))
            return Reply(draft.finish("error", error=failure.message), failure)
        # The provider may have counted all of a call that was cut off, so all of it counts as used.
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
    return f"the budget does not cover the next request: {rest or 'nothing'} left, and it may have {needed} tokens"


def render_rest(tokens: float, usd: float) -> str:
    parts = [f"{tokens:.0f} tokens"] if tokens != float("inf") else []
    parts += [f"${usd:.4f}"] if usd != float("inf") else []
    return " and ".join(parts)


def bound_input(request: ModelRequest) -> int:
    """Return an upper bound of the request's tokens: what the provider counted last, plus one per new byte."""
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
    """Return how many of the wanted output tokens are covered by these tokens and dollars."""
    output, spare = min(wanted, tokens - size), usd - bound_price(price, size, 0)
    highest_price = bound_price(price, 0, 1)
    if highest_price > 0 and spare != float("inf"):
        output = min(output, spare / highest_price)
    return max(0, int(output)) if spare >= 0 else 0


def bound_price(price: Price, size: int, output: int) -> float:
    """Return the highest price of these tokens: cache writes cost more than input, tiers more than the base."""
    rows: list[Price | PriceTier] = [price, *price.tiers]
    into = max(max(row.input, row.cache_write, row.cache_read) for row in rows)
    out = max(row.output for row in rows)
    return (size * into + output * out) / 1_000_000
