import asyncio
import random

import pytest

from retinue.core.messages import Cost, ImageContent, TextContent, Usage, UserMessage
from retinue.core.model import Draft, Failure, ModelInfo, ModelRequest, Price, PriceTier, Reply
from retinue.engine.budget import IMAGE_TOKENS, BudgetedModel, Lease, Leases, bound_input, bound_price, fit_output

INFO = ModelInfo(provider="p", id="m", api="a", max_tokens=2000, cost=Price(input=3, output=15, cache_write=4))


class Spender:
    """Uses some of what it is allowed, after a while."""

    info = INFO

    def __init__(self, dice):
        self.dice = dice
        self.asked = 0

    async def reply(self, request, draft):
        self.asked += 1
        await asyncio.sleep(0)
        size = self.dice.randint(1, bound_input(request))
        output = self.dice.randint(1, request.max_tokens)
        cost = (size * 4 + output * 15) / 1e6
        draft.usage = Usage(input=size, output=output, total_tokens=size + output, cost=Cost(total=cost))
        return Reply(draft.finish("stop"))


def ask(text="hello"):
    return ModelRequest(system="s", messages=[UserMessage([TextContent(text)], 0)])


def test_children_draw_on_their_parent():
    parent = Lease(tokens=100)
    first, second = Lease(parent=parent), Lease(tokens=1000, parent=parent)
    assert (first.hold(60, 0), second.hold(60, 0), second.hold(40, 0)) == (True, False, True)
    first.settle(60, 0, Usage(total_tokens=10))
    assert (second.left()[0], parent.left()[0]) == (50, 50)


async def test_unlimited_lease_asks_plainly():
    model = Spender(random.Random(1))
    reply = await BudgetedModel(model, Lease()).reply(ModelRequest("s", [], max_tokens=5), Draft(INFO, started_ms=0))
    assert reply.failure is None


async def test_spent_budget_is_a_failure():
    model = Spender(random.Random(1))
    reply = await BudgetedModel(model, Lease(tokens=100)).reply(ask(), Draft(INFO, started_ms=0))
    assert (reply.failure.kind, model.asked) == ("budget", 0)


async def test_held_budget_is_waited_for():
    lease, model = Lease(tokens=4_000), Spender(random.Random(1))
    models = [BudgetedModel(model, Lease(parent=lease)) for _ in range(3)]
    model.dice.randint = lambda least, most: least
    replies = await asyncio.gather(*(each.reply(ask(), Draft(INFO, started_ms=0)) for each in models))
    assert [reply.failure for reply in replies] == [None, None, None]


async def test_cancelled_call_counts_in_full():
    class Hangs:
        info = INFO

        async def reply(self, request, draft):
            await asyncio.sleep(60)

    lease = Lease(tokens=10_000)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await BudgetedModel(Hangs(), lease).reply(ask(), Draft(INFO, started_ms=0))
    assert lease.left()[0] == 10_000 - bound_input(ask()) - 2000


@pytest.mark.parametrize(("has_begun", "told", "spent"), [(True, 0, None), (True, 50, 50), (False, 0, 0)])
async def test_failed_reply_counts_what_it_may_have_cost(has_begun, told, spent):
    class Fails:
        info = INFO

        async def reply(self, request, draft):
            if has_begun:
                draft.add(draft.open_text(), "half an ans")
            draft.usage = Usage(total_tokens=told)
            return Reply(draft.finish("error", error="cut"), Failure("network", "cut"))

    lease = Lease(tokens=10_000)
    await BudgetedModel(Fails(), lease).reply(ask(), Draft(INFO, started_ms=0))
    # Nobody told what the part that came has cost: it may have been all that was set aside.
    full = bound_input(ask()) + INFO.max_tokens
    assert lease.left()[0] == 10_000 - (full if spent is None else spent)


async def test_image_is_part_of_what_is_set_aside():
    image = ImageContent("aGk=", "image/png")
    plain = ask()
    shown = ModelRequest("s", [UserMessage([TextContent("hello"), image], 0)])
    assert bound_input(shown) - bound_input(plain) == IMAGE_TOKENS
    model = Spender(random.Random(1))
    replies = [
        await BudgetedModel(model, Lease(tokens=4_000)).reply(request, Draft(INFO, started_ms=0))
        for request in (plain, shown)
    ]
    assert [reply.failure and reply.failure.kind for reply in replies] == [None, "budget"]


@pytest.mark.sample(10)
@pytest.mark.parametrize("seed", range(100))
async def test_crowd_never_overspends(seed):
    dice = random.Random(seed)
    lease = Lease(tokens=dice.randint(10_000, 400_000), cost_usd=dice.choice([None, dice.uniform(0.05, 2)]))
    model = Spender(dice)

    async def child(number):
        own = Lease(tokens=dice.choice([None, 5000]), parent=lease)
        for _ in range(dice.randint(1, 5)):
            reply = await BudgetedModel(model, own).reply(ask("x" * dice.randint(1, 500)), Draft(INFO, started_ms=0))
            if reply.failure is not None:
                return

    await asyncio.gather(*(child(number) for number in range(500)))
    tokens, usd = lease.left()
    assert tokens >= 0 and usd >= -1e-9, f"seed {seed}"


DEAR, ANY = Price(input=1_000_000, output=2_000_000), float("inf")


@pytest.mark.parametrize(
    ("price", "tokens", "usd", "output"),
    [
        (DEAR, ANY, ANY, 5_000),
        (Price(), 1_100, ANY, 1_000),
        (DEAR, ANY, 700.0, 300),  # a hundred tokens in cost a hundred dollars, and each one out two
        (DEAR, 50, ANY, 0),
        (DEAR, ANY, 99.0, 0),
        (Price(), ANY, -1.0, 0),
    ],
)
def test_output_fits_what_is_left(price, tokens, usd, output):
    assert fit_output(price, 100, 5_000, tokens, usd) == output


def test_each_prompt_has_a_key_of_its_own():
    lease = Lease(tokens=5)
    first = lease.key
    assert (bool(first), lease.key) == (True, first)
    lease.renew()
    assert lease.key not in ("", first)


def test_new_prompt_has_all_its_budget_but_what_is_held():
    lease = Lease(tokens=100, cost_usd=2.0)
    assert lease.hold(40, 0.5)
    lease.settle(10, 0.25, Usage(total_tokens=20, cost=Cost(total=1.0)))
    assert (lease.left(), lease.left(held=True), lease.held) == ((50, 0.75), (80, 1.0), (30, 0.25))
    lease.renew()
    assert (lease.left(), lease.render_rest()) == ((70, 1.75), "70 tokens and $1.7500")
    assert (lease.hold(71, 0), lease.hold(0, 1.8), lease.hold(70, 1.75)) == (False, False, True)


def test_repeated_lease_has_nothing_spent_and_nothing_above():
    above = Lease(tokens=10)
    lease = Lease(tokens=100, cost_usd=2.0, parent=above)
    lease.settle(0, 0, Usage(total_tokens=20))
    again = lease.repeat()
    assert (again.left(), again.root, lease.root) == ((100, 2.0), again, above)


@pytest.mark.parametrize(("tokens", "usd", "answer"), [(1, None, True), (None, 0.1, True), (None, None, False)])
def test_limit_above_is_a_limit(tokens, usd, answer):
    lease = Lease(tokens=tokens, cost_usd=usd)
    assert (lease.has_limit, lease.is_limited, Lease(parent=lease).is_limited) == (answer,) * 3
    assert Lease(parent=lease).has_limit is False


def test_leases_of_runs_hang_below_each_other():
    main = Lease(tokens=100)
    leases = Leases(main)
    first, apart = leases.open("a", "main", 50, None), leases.open("b", None, None, 1.0)
    below = leases.open("c", "a", 80, None)
    leases.charge("c", Usage(total_tokens=20))
    assert [lease.left() for lease in (main, first, below, apart)] == [
        (80, float("inf")),
        (30, float("inf")),
        (30, float("inf")),
        (100, 1.0),
    ]
    leases.forget("a")
    assert (leases.find("c"), leases.open("d", "a", None, None).parent) == (below, main)


def bound(text: str, system: str = "") -> int:
    return bound_input(ModelRequest(system=system, messages=[UserMessage(text, 0)]))


def test_each_byte_of_a_message_is_a_token() -> None:
    assert (bound("x" * 5000) - bound(""), bound("é" * 100) - bound("e" * 100)) == (5000, 100)
    assert bound("", "s" * 700) - bound("") == 700


def test_price_is_that_of_the_dearest_row() -> None:
    cost = Price(input=1, output=2, cache_read=0.5, cache_write=4, tiers=(PriceTier(0, input=3, output=8),))
    assert bound_price(cost, 1_000_000, 500_000) == 4 + 4
