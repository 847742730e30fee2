import pytest

from retinue.features.approvals.kinds import find_kind


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("src/a.py", "changes of files directly in src/"),
        ("src/deep/../b.py", "changes of files directly in src/"),
        ("src/deep/a.py", "changes of files directly in src/deep/"),
        ("a.py", "changes of a.py"),
        (".git/hooks/pre-commit", "changes of .git/hooks/pre-commit"),
        ("/elsewhere/x/a.py", "changes of /elsewhere/x/a.py"),
        ("../a.py", "changes of {above}/a.py"),
    ],
)
def test_edits_are_alike_in_one_folder(tmp_path, path, label):
    above = tmp_path.resolve()
    kind = find_kind(("edit",), {"path": path}, str(above / "work"))
    assert kind is not None and kind.label == label.format(above=above)


@pytest.mark.attack("E13")
def test_link_belongs_to_its_target(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "Makefile").touch()
    (tmp_path / "src" / "link").symlink_to(tmp_path / "Makefile")
    plain, link, target = (
        find_kind(("write",), {"path": path, "content": "src/"}, str(tmp_path))
        for path in ("src/a", "src/link", "Makefile")
    )
    assert link == target != plain


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("npm test", "npm test"),
        ("npm  test -- --watch", "npm test"),
        ("npm run build --fast", "npm run build"),
        ("git push origin main", "git push"),
        ("npm run", None),
        ("npm test; rm -r x", None),
        ("npm test $(rm x)", None),
        ("npm test\nrm x", None),
        ("npm exec rimraf x", None),
        ("uv run python x.py", None),
        ("git -C /x push", None),
        ("rm build", None),
        ("python3 x.py", None),
        ("FOO=1 npm test", None),
        ("", None),
    ],
)
def test_commands_are_alike_by_their_first_words(command, words):
    kind = find_kind(("bash",), {"command": command}, "/")
    assert (kind and kind.label) == (words and f'commands that start with "{words}"')


def test_other_tools_have_no_kind():
    assert find_kind(("mcp__x__edit",), {"path": "src/a", "command": "npm test"}, "/") is None
