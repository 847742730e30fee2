import pytest

from retinue.cli.options import parse_arguments
from retinue.core.errors import UsageError


def fields(*arguments):
    plain = vars(parse_arguments([]))
    return {name: value for name, value in vars(parse_arguments(arguments)).items() if value != plain[name]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-p", "hi"], {"print": True, "prompts": ["hi"]}),
        (["hi", "-p", "there"], {"print": True, "prompts": ["hi", "there"]}),
        (["--mode=json", "@a.md", "go"], {"mode": "json", "files": ["a.md"], "prompts": ["go"]}),
        (["-p", "--", "-x", "@y"], {"print": True, "prompts": ["-x", "@y"]}),
        (["-C", "x", "models", "--json"], {"command": "models", "directory": "x", "json": True}),
        (["sessions", "--all", "-na"], {"command": "sessions", "all": True, "no_approve": True}),
        (["-p", "models"], {"print": True, "prompts": ["models"]}),
        (["run", "a", "b", "c", "--write"], {"command": "run", "words": ["a", "b", "c"], "write": True}),
        (["-C", "run", "run", "a", "--", "-x"], {"command": "run", "directory": "run", "words": ["a", "-x"]}),
        (["-na", "agents", "show", "x"], {"command": "agents", "words": ["show", "x"], "no_approve": True}),
        (["trust", "--no", "d"], {"command": "trust", "words": ["d"], "no": True}),
        (["run", "a", "@b"], {"command": "run", "words": ["a", "@b"]}),
        (["--append-system-prompt", "a", "--append-system-prompt", "b"], {"append_system_prompt": ["a", "b"]}),
        (["--tools", "", "x"], {"tools": "", "prompts": ["x"]}),
        (["-nt", "-nc", "-xt", "bash"], {"no_tools": True, "no_context_files": True, "exclude_tools": "bash"}),
    ],
)
def test_arguments_are_understood(arguments, expected):
    assert fields(*arguments) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--modle", "x"], "unknown option '--modle'; did you mean --model?"),
        (["--modell", "x"], "unknown option '--modell'; did you mean --model?"),
        (["--zzz"], "unknown option '--zzz'; see retinue --help"),
        (["--model"], "--model needs a value"),
        (["--model", "-p"], "--model needs a value"),
        (["--model", " "], "--model needs a value that is not blank"),
        (["--model", "a", "--model", "b"], "--model is given twice; use it once"),
        (["--print=yes"], "--print takes no value, but got 'yes'"),
        (["--mode", "jason"], "--mode must be one of text, json, rpc, not 'jason'; did you mean json?"),
        (
            ["--thinking", "extreme"],
            "--thinking must be one of off, minimal, low, medium, high, xhigh, max, not 'extreme'",
        ),
        (["-a", "-na"], "--approve and --no-approve contradict each other; use one of them"),
        (["-c", "--session", "x"], "--continue and --session contradict each other; use one of them"),
        (["models", "x"], "retinue models takes no argument 'x'; see retinue models --help"),
        (["trust", "a", "b"], "retinue trust takes no argument 'b'; see retinue trust --help"),
        (["trust", "--yes", "--forget"], "--yes and --forget contradict each other; use one of them"),
        (["agents", "new", "x", "--user", "--project"], "--user and --project contradict each other; use one of them"),
        (["run", "a", "b", "--tools", "read"], "unknown option '--tools'; see retinue run --help"),
        (["doctor", "-p"], "unknown option '-p'; see retinue doctor --help"),
        (["--json"], "--json needs a command: retinue run --json"),
    ],
)
def test_mistakes_get_one_sentence(arguments, message):
    with pytest.raises(UsageError) as caught:
        parse_arguments(arguments)
    assert str(caught.value) == message
