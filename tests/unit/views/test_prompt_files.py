import base64
from pathlib import Path

import pytest

from retinue.core.messages import ImageContent, TextContent
from retinue.views.prompt_files import MAX_IMAGE_BYTES, compose_prompt, is_image, list_mentions, render_mention

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
IMAGE = ImageContent(base64.b64encode(PNG).decode(), "image/png")
ASKED = '(The user asks for the agent "Explore": delegate to it.)'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("see @a.py and @b/c", ["a.py", "b/c"]),
        ('@"a b.txt" x @a @a', ["a b.txt", "a"]),
        ("me@example.org, (@x)", ["x)"]),
        ("@", []),
    ],
)
def test_names_after_the_sign_are_found(text, names):
    assert list_mentions(text) == names


@pytest.mark.parametrize("name", ["a.py", "a b.txt", "dir/é.png", "odd."])
def test_written_mentions_are_found_again(name):
    assert list_mentions(f"see {render_mention(name)} there") == [name]


def test_unwritable_names_are_refused():
    assert [render_mention(name) for name in ('a"b', "a\nb")] == ["", ""]


def test_images_go_along(tmp_path):
    (tmp_path / "a b.png").write_bytes(PNG)
    (tmp_path / "b.png").write_bytes(PNG)
    text = 'compare @"a b.png" with @b.png.'
    assert compose_prompt(text, [], tmp_path) == ([TextContent(text), IMAGE, IMAGE], [])


def test_other_files_stay_names(tmp_path):
    (tmp_path / "a.py").write_text("secret")
    (tmp_path / "fake.png").write_text("no image")
    text = "read @a.py and @fake.png"
    assert compose_prompt(text, [], tmp_path) == ([TextContent(text)], [])


def test_missing_and_large_images_are_told(tmp_path):
    with (tmp_path / "big.png").open("wb") as file:
        file.write(PNG)
        file.truncate(MAX_IMAGE_BYTES + 1)
    content, problems = compose_prompt("@big.png @none.png", [], tmp_path)
    assert content == [TextContent("@big.png @none.png")]
    assert problems == [
        "@'big.png' has more than 10 MiB; make the image smaller",
        "cannot read @'none.png': No such file or directory",
    ]


@pytest.mark.parametrize("text", ["@agent-Explore look", "let @agent-explore, look", "@Explore look", "ask (@Explore)"])
def test_named_agents_are_asked_for(tmp_path, text):
    assert compose_prompt(text, ["Explore", "Plan"], tmp_path) == ([TextContent(f"{text}\n\n{ASKED}")], [])


def test_files_win_over_agents(tmp_path):
    (tmp_path / "Explore").write_text("")
    assert compose_prompt("@Explore", ["Explore"], tmp_path) == ([TextContent("@Explore")], [])


def test_words_taken_back_ask_once(tmp_path):
    text = f"@agent-Explore\n\n{ASKED}"
    assert compose_prompt(text, ["Explore"], tmp_path) == ([TextContent(text)], [])


def test_images_are_known_by_content(tmp_path):
    (tmp_path / "x").write_bytes(PNG)
    (tmp_path / "y.png").write_text("text")
    assert [is_image(str(path)) for path in (tmp_path / "x", tmp_path / "y.png", tmp_path, Path("/none"))] == [
        True,
        False,
        False,
        False,
    ]
