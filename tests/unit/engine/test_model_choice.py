from retinue.core.messages import ThinkingLevel
from retinue.core.model import Draft, ModelInfo, ModelRequest, Reply
from retinue.engine.model_choice import CurrentModel, UnaskedModel

ONE, TWO = (ModelInfo(provider="p", id=name, api="own", max_tokens=2000) for name in ("one", "two"))


class Echo:
    """Says what it was asked with."""

    def __init__(self, info: ModelInfo) -> None:
        self.info = info
        self.asked: list[object] = []

    async def reply(self, request: ModelRequest, draft: Draft) -> Reply:
        draft.add(draft.open_text(), "hello")
        self.asked += [request.thinking, draft.thinking, request.max_tokens]
        draft.say(self.info.id)
        return Reply(draft.finish("stop"))


async def test_choice_counts_from_the_next_reply_on() -> None:
    one, two = Echo(ONE), Echo(TWO)
    chosen: list[tuple[Echo, ThinkingLevel]] = [(one, "low")]
    limits, said, sizes = [500, None, 5000], list[str](), list[int]()

    def say(name: str) -> None:
        said.append(name)
        sizes.append(current.size)

    current = CurrentModel(lambda: chosen[-1], say, lambda: limits.pop(0))
    for model in (one, two, two):
        chosen.append((model, "low" if model is one else "high"))
        reply = await current.reply(ModelRequest("s", [], max_tokens=7), Draft(model.info, started_ms=0))
        assert (reply.failure, current.info, current.size) == (None, model.info, 0)
    assert (one.asked, two.asked) == (["low", "low", 500], ["high", "high", 7, "high", "high", 2000])
    assert (said, min(sizes) > 0) == (["one", "two", "two"], True)


async def test_unasked_model_says_why() -> None:
    model = UnaskedModel(ONE, "too small")
    reply = await model.reply(ModelRequest("s", []), Draft(model.info, started_ms=0))
    assert reply.failure is not None
    assert (reply.failure.kind, reply.failure.message) == ("request", "too small")
    assert (reply.message.stop_reason, reply.message.error_message) == ("error", "too small")
