import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.errors import ModelError
from retinue.core.messages import ThinkingLevel
from retinue.core.model import Draft, ModelInfo, ModelRequest, Reply
from retinue.engine.model_choice import CurrentModel, NamedModel, UnaskedModel, choose_main_model, choose_model
from retinue.engine.request import RunRequest
from retinue.models.auth import Keys
from retinue.models.catalog import Provider
from retinue.models.registry import ModelRegistry
from retinue.models.resolve import ModelChoice
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


def choose_main(model: str, **fields: object) -> ModelChoice | None:
    infos = {name: ModelInfo(name, "m1", "openai-completions") for name in ("home", "other")}
    providers = {
        name: Provider(name, name, info.api, "http://127.0.0.1:1", lambda info=info: (info,), needs_key=False)  # type: ignore[misc]
        for name, info in infos.items()
    }
    definition = replace(DEFINITION, model=model, **fields)
    return choose_main_model(definition, ModelRegistry(providers, Keys({})), lambda: ModelChoice(infos["home"]), ())


def test_file_of_the_user_may_choose_a_provider() -> None:
    chosen = choose_main("other/m1")
    assert chosen is not None and (chosen.info.ref, chosen.is_chosen) == ("other/m1", True)
    builtin = choose_main("other/m1", source="builtin")
    assert builtin is not None and (builtin.info.ref, builtin.is_chosen) == ("home/m1", False)


def test_unknown_model_of_a_file_names_the_agent() -> None:
    with pytest.raises(ModelError, match="agent 'a': "):
        choose_main("missing-model")
    assert (choose_main("missing-model", is_model_wish=True), choose_main("inherit")) == (None, None)
