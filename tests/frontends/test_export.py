import os
import re
import shutil
import stat
import subprocess
from html.parser import HTMLParser

import pytest

HOSTILE = (
    "<script>alert(1)</script> \x1b]0;x\x07 <img src=x onerror=alert(2)> [x](javascript:alert(3)) ![i](http://h/i.png)"
)
FLEET = [
    {
        "calls": [
            {"name": "Agent", "arguments": {"subagent_type": "Explore", "prompt": "Look", "description": "look <b>"}}
        ]
    },
    {"text": "Started."},
    {"text": HOSTILE},
    {"text": f"Done: {HOSTILE}", "usage": {"input": 1000, "output": 50}},
]


class Page(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, its text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.fixture
def exported(place):
    done = place.run("-p", "Look around", HOSTILE.replace("\x1b", "").replace("\x07", ""), replies=FLEET)
    assert done.status == 0, done.stderr
    made = place.run("export")
    assert (made.status, made.stderr) == (0, "")
    return place.work / made.stdout.strip()


@pytest.mark.attack("H9")
def test_page_runs_nothing(exported):
    page = Page(exported.read_text())
    assert {"script", "img", "iframe", "object", "link", "form"} & set(page.elements) == set()
    assert [name for name, _ in page.attributes if name.startswith("on")] == []
    links = [value for name, value in page.attributes if name == "href"]
    assert [link for link in links if not link.startswith(("#", "http://h/"))] == []
    assert [value for name, value in page.attributes if name == "src"] == []
    assert "<script>alert(1)</script>" in page.text
    assert "\x1b" not in page.text


def test_page_forbids_everything_else(exported):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', exported.read_text())[1]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_page_tells_whole_story(exported):
    text = exported.read_text()
    page = Page(text)
    assert page.elements.count("svg") == 2
    assert 'class="timeline"' in text
    assert {"Timeline", "Tokens and cost", "Runs", "Conversation"} <= set(re.findall(r"<h2[^>]*>([^<]*)</h2>", text))
    assert "look <b>" in page.text
    assert [name for name in ("model", "tool") if f'<rect class="{name}"' not in text] == []


def test_colours_are_explained(exported):
    legends = re.findall(r'<p class="legend">(.*?)</p>', exported.read_text())
    assert [re.findall(r'class="(\w+)"', each)[:2] for each in legends] == [["model", "tool"], ["input", "output"]]


@pytest.mark.attack("H3")
def test_page_is_private(exported):
    assert stat.S_IMODE(os.stat(exported).st_mode) == 0o600


def test_existing_file_is_kept(place, exported):
    again = place.run("export")
    assert (again.status, "already exists" in again.stderr) == (2, True)
    assert place.run("export", "-o", exported.name).status == 0
    assert place.run("export", "-o", "-").stdout.startswith("<!doctype html>")


@pytest.mark.parametrize("words", [["nosuch"], ["a", "b"], ["/nowhere/x.jsonl"]])
def test_unknown_session_is_explained(place, words):
    done = place.run("export", *words)
    assert (done.status in (1, 2), done.stdout, "Traceback" in done.stderr) == (True, "", False)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_browser_shows_page_without_complaint(exported, tmp_path):
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile"]
    command += ["--enable-logging=stderr", "--v=0", "--dump-dom", exported.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "<svg" in done.stdout
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
