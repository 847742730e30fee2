import pytest

from retinue.ui.commands.general import leave
from retinue.ui.commands.registry import SlashCommand
from retinue.ui.completion import CompletionSources, FileIndex, Suggestion, Token, complete, find_token, is_complete

FILES = FileIndex(["README.md", "src/", "a b.txt", "my dir/", "src/main.py", "src/mail/queue.py"])
STOCK = CompletionSources(
    commands=lambda: [
        SlashCommand("model", "choose another", leave, "[name]"),
        SlashCommand("new", "begin anew", leave),
        SlashCommand("name", "", leave, "NAME"),
    ],
    arguments=lambda command: [("high", "now"), ("low", "")] if command == "thinking" else [],
    agents=lambda: [("Explore", "looks around"), ("main-writer", "writes")],
    files=FILES,
)


def texts(before, *, is_asked=False):
    token = find_token(before, is_asked=is_asked)
    return None if token is None else [each.text for each in complete(token, STOCK)]


@pytest.mark.parametrize(
    ("before", "token"),
    [
        ("/", Token("command", "", 1)),
        ("/mo", Token("command", "mo", 3)),
        ("/model ", Token("argument", "", 0, "model")),
        ("/model son", Token("argument", "son", 3, "model")),
        ("/etc/passwd", None),
        ("say /mo", None),
        ("one\n/mo", None),
        ("look at @", Token("mention", "", 1)),
        ("look at @src/m", Token("mention", "src/m", 6)),
        ('@"a b', Token("mention", "a b", 5)),
        ("(@src", Token("mention", "src", 4)),
        ("me@example.org", None),
        ('@"a b.txt" and', None),
        ("line\n@x", Token("mention", "x", 2)),
        ("plain", None),
    ],
)
def test_tokens_are_found_before_cursor(before, token):
    assert find_token(before) == token


def test_words_are_paths_only_when_asked():
    assert (find_token("see src/ma"), find_token("see src/ma", is_asked=True)) == (None, Token("path", "src/ma", 6))


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("/mo", ["/model "]),
        ("/ne", ["/new", "/name "]),
        ("/zz", []),
        ("/thinking l", ["low"]),
        ("/thinking ", ["high", "low"]),
        ("@main.py", ["@src/main.py "]),
        ("@a b", None),
        ('@"a b', ['@"a b.txt" ']),
        ("@agent-", ["@agent-Explore ", "@agent-main-writer "]),
        ("@exp", ["@agent-Explore "]),
        ("@queue", ["@src/mail/queue.py "]),
        ("@mlq", ["@src/mail/queue.py "]),
    ],
)
def test_completions_fit_what_is_typed(before, found):
    assert texts(before) == found


def test_folders_stay_open_for_more():
    found = complete(Token("mention", "my d", 5), STOCK)
    assert found == [Suggestion("@my dir/", '@"my dir/', "", goes_on=True)]


def test_agents_follow_files_without_letters():
    assert texts("@")[:2] == ["@README.md ", "@src/"]
    assert texts("@")[-1] == "@agent-main-writer "


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("@agent-", ["@agent-Explore ", "@agent-tester "]),
        ("@agent-expl", ["@agent-Explore "]),
        ("@agent-explorer", ["@agent-explorer "]),
    ],
)
def test_one_agent_of_a_family_is_offered(before, found):
    names = ("Explore", "explorer", "tester")
    families = dict(zip(names, "112", strict=True))
    sources = CompletionSources(agents=lambda: [(name, "") for name in names], families=lambda: families)
    assert [each.text for each in complete(find_token(before), sources)] == found


def test_begun_agents_lead_and_others_follow():
    assert texts("@mai") == ["@agent-main-writer ", "@src/main.py ", "@src/mail/queue.py "]
    assert texts("@e")[0] == "@agent-Explore "
    assert texts("@e")[-1] == "@agent-main-writer "


def test_paths_are_completed_without_sign():
    assert texts("read src/mai", is_asked=True) == ["src/main.py ", "src/mail/queue.py "]


@pytest.mark.parametrize(
    ("before", "is_whole"),
    [("/new", True), ("/ne", False), ("@README.md", True), ("@READ", False), ("@src/", False), ("/thinking low", True)],
)
def test_complete_words_are_known(before, is_whole):
    token = find_token(before)
    assert any(is_complete(token, each) for each in complete(token, STOCK)) == is_whole


def test_nearest_names_lead():
    index = FileIndex(["test.py", "src/test_app.py", "src/latest.py", "tests/data/x.txt"])
    assert index.find("test", 9) == ["test.py", "tests/data/x.txt", "src/test_app.py", "src/latest.py"]


def test_names_a_terminal_cannot_show_are_hidden():
    assert FileIndex(['a"b', "a\nb", "a\x1b[31m", "a\u202eb", "ab"]).find("", 9) == ["ab"]


def test_narrowing_and_widening_agree():
    index = FileIndex([f"dir{n % 7}/file{n}.py" for n in range(500)])
    first = index.find("file4", 500)
    index.find("file42", 500)
    assert index.find("file4", 500) == first
    assert len(first) == 111


def test_hostile_names_are_searched_quickly():
    index = FileIndex(["a" * 250 + str(number) for number in range(200)])
    assert index.find("a" * 30 + "b", 9) == []


@pytest.mark.parametrize("needle", ["[x", "^-", "a.*b", "\\d", "]["])
def test_signs_mean_themselves(needle):
    assert FileIndex(["dir/abc", "x[^-]"]).find(needle, 9) == (["x[^-]"] if needle == "^-" else [])
