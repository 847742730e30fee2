import pytest

from retinue.core.schema import fit_arguments

SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "limit": {"type": "integer", "minimum": 1},
        "deep": {"type": "boolean"},
        "edits": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object", "properties": {"old": {"type": "string"}}, "required": ["old"]},
        },
    },
    "required": ["path"],
}


@pytest.mark.parametrize(
    ("given", "fitted"),
    [
        ({"path": "a"}, {"path": "a"}),
        ({"path": "a", "limit": "5"}, {"path": "a", "limit": 5}),
        ({"path": "a", "limit": 5.0}, {"path": "a", "limit": 5}),
        ({"path": "a", "limit": None}, {"path": "a"}),
        ({"path": "a", "edits": [{"old": "x"}]}, {"path": "a", "edits": [{"old": "x"}]}),
    ],
)
def test_fitting_arguments_pass(given, fitted):
    assert fit_arguments(given, SCHEMA) == (fitted, [])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "'path' is missing"),
        ({"path": 5}, "'path' must be a string, not '5'"),
        ({"path": None}, "'path' must be a string, not 'None'"),
        ({"path": "a", "limit": True}, "'limit' must be an integer, not 'True'"),
        ({"path": "a", "limit": 1.5}, "'limit' must be an integer, not '1.5'"),
        ({"path": "a", "limit": 0}, "'limit' must be at least 1, not '0'"),
        ({"path": "a", "limit": float("nan")}, "'limit' must be an integer, not 'nan'"),
        ({"path": "a", "edits": [{"old": 1}]}, "'edits[0].old' must be a string, not '1'"),
        ({"path": "a", "edits": [{}]}, "'edits[0].old' is missing"),
        ({"path": "a", "edits": []}, "'edits' needs at least 1 item(s)"),
        ({"path": "a", "pth": 1}, "'pth' is not an argument; accepted: path, limit, deep, edits; did you mean 'path'?"),
        ([], "the arguments must be an object, not '[]'"),
    ],
)
def test_misfits_are_named(given, problem):
    assert fit_arguments(given, SCHEMA)[1] == [problem]
