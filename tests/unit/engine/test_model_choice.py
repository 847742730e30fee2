import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.errors import ModelError
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Draft, ModelInfo, ModelRequest, Reply
from retinue.engine.model_choice import CurrentModel, NamedModel, UnaskedModel, choose_model
from retinue.engine.request import RunRequest
from retinue.models.scripted import ScriptedModel, parse_script

REQUEST = RunRequest(agent="a", task="t", description="d", surface="fleet")
DEFINITION = Definition(name="a", dialect="sticky", source="user", path="/a.md", model="wrong")
PARENT = ScriptedModel(parse_script([]))
WRONG = NamedModel("wrong", failure=ModelError("there is no model 'wrong'"))


def choose(request: RunRequest = REQUEST, definition: Definition = DEFINITION, **rules: bool) -> tuple[object, str]:
    return choose_model(WRONG, definition, request, PARENT, None, **rules)  # type: ignore[arg-type]


def test_wrong_model_fails_unless_it_is_ignored() -> None:
    with pytest.raises(ModelError, match="agent 'a': there is no model 'wrong'"):
        choose()
    assert choose(accepts_unknown=True) == choose(is_lenient=True) == (PARENT, "")
    assert choose(definition=replace(DEFINITION, is_model_wish=True)) == (PARENT, "")


def test_wrong_model_of_the_request_is_never_ignored() -> None:
    asked, wish = replace(REQUEST, model="wrong"), replace(DEFINITION, is_model_wish=True)
    with pytest.raises(ModelError):
        choose(asked, wish, is_lenient=True)
    assert choose(asked, accepts_unknown=True) == (PARENT, "")


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
