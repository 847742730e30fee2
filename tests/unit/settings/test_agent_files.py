import pytest

from retinue.core.errors import ConfigError
from retinue.settings.agent_files import check_agent_file, find_agent_file, read_agent_file, write_agent_file

TEXT = "---\nname: smith\ndescription: makes\n---\n\nMake it.\n"


@pytest.mark.parametrize(
    "answer",
    [
        TEXT,
        f"\n\n{TEXT}\n",
        f"Here:\n\n```markdown\n{TEXT}```\n\nHave fun.",
        f"```\n{TEXT}```",
        f"Sure.\n\n{TEXT}",
    ],
)
def test_file_is_found_in_an_answer(answer):
    assert find_agent_file(answer) == TEXT


@pytest.mark.parametrize("answer", ["", "I cannot.", "---\nonly one fence"])
def test_other_answers_hold_none(answer):
    assert find_agent_file(answer) == ""


def test_odd_fields_are_remarked():
    assert check_agent_file(TEXT, "x.md", "pi") == []
    assert "bogus" in check_agent_file(TEXT.replace("name", "bogus: 1\nname"), "x.md", "pi")[0]


@pytest.mark.parametrize("text", ["", "words", "---\nname: [\n---\nx"])
def test_what_is_no_agent_is_refused(text):
    with pytest.raises(ConfigError, match=r"^x"):
        check_agent_file(text, "x.md", "pi")


def test_links_stay_links(tmp_path):
    target, link = tmp_path / "target.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    write_agent_file(str(link), TEXT)
    assert (link.is_symlink(), read_agent_file(str(target))) == (True, TEXT)


def test_unreadable_texts_are_told(tmp_path):
    (tmp_path / "bytes.md").write_bytes(b"\xff\xfe\xfd")
    for name in ("bytes.md", "gone.md"):
        with pytest.raises(ConfigError, match=name):
            read_agent_file(str(tmp_path / name))
