import pytest

from retinue.features.mcp.form import fill_form


async def fill(fields, *answers, required=()):
    given, asked = list(answers), []

    async def ask(question):
        asked.append(question)
        return given.pop(0)

    values = await fill_form("docs", "Fill \x1b[31min.", {"properties": fields, "required": list(required)}, ask)
    return values, asked


@pytest.mark.parametrize(
    ("field", "answer", "value"),
    [
        ({"type": "string"}, " a b ", "a b"),
        ({"type": "integer"}, "7", 7),
        ({"type": "integer"}, "seven", None),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "boolean"}, "false", False),
        ({"enum": ["x", "y"]}, "y", "y"),
        ({"enum": ["x", "y"], "enumNames": ["Ex", "Why"]}, "Why", "y"),
        ({"oneOf": [{"const": "x", "title": "Ex"}]}, "Ex", "x"),
        ({"oneOf": [{"const": "x", "title": "Ex"}]}, "x", None),
        ({"type": "array", "items": {"enum": ["x", "y", "z"]}}, "z, x, w", ["z", "x"]),
        ({"type": "integer", "default": 3}, "", 3),
    ],
)
async def test_answer_gets_the_type_of_its_field(field, answer, value):
    values, [question] = await fill({"it": field}, answer, required=["it"])
    assert values == (None if value is None else {"it": value})
    assert question.title == "MCP server 'docs' asks: Fill [31min.\nit"


async def test_each_field_is_a_question():
    fields = {"name": {"type": "string", "title": "Your name"}, "age": {"type": "integer", "description": "In years."}}
    values, asked = await fill(fields, "Ann", "")
    assert values == {"name": "Ann"}
    assert [(each.kind, each.text) for each in asked] == [
        ("input", "An empty answer leaves it out."),
        ("input", "In years.\nAn empty answer leaves it out."),
    ]
    assert all(each.accepts("") for each in asked)


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"a": {"type": "string", "default": "x"}}, [None]),
        ({"a": {"type": "string"}, "b": {"type": "string"}}, ["x", None]),
        ({}, ["decline"]),
        ({}, [None]),
        ({str(number): {} for number in range(13)}, []),
        ({"a": "nonsense"}, []),
        ("nonsense", [""]),
    ],
)
async def test_form_is_declined_as_a_whole(fields, answers):
    assert (await fill(fields, *answers))[0] is None


async def test_form_without_fields_is_accepted():
    assert (await fill({}, "accept"))[0] == {}
