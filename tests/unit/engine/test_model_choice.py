import pytest
from msgspec.structs import replace

from retinue.core.definition import Definition
from retinue.core.errors import ModelError
from retinue.engine.model_choice import NamedModel, choose_model
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
