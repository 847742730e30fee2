import json
import os
import stat
import sys
import tempfile
from contextlib import asynccontextmanager

import pytest

from tests.flows.document_world import (
    DATES,
    DOCX,
    ODT,
    PAGE,
    PPTX,
    XLSX,
    make_dates,
    make_docx,
    make_epub,
    make_odp,
    make_ods,
    make_odt,
    make_pdf,
    make_pptx,
    make_xlsx,
    pack,
)
from tests.flows.web_world import open_canaries, open_world, redirect, reply

UNICODE = b"begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfrange <0001> <0003> <0061> endbfrange"
WIDE = b"<< /Length %d >>\nstream\n%s\nendstream" % (len(UNICODE), UNICODE)
TYPE0 = b"/Encoding /Identity-H /ToUnicode 4 0 R /DescendantFonts [5 0 R]"
SYSTEM = b"<< /Registry (Adobe) /Ordering (Identity) >>"
CID = b"<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo %s >>" % SYSTEM
NOTEBOOK = json.dumps(
    {
        "nbformat": 4,
        "cells": [{"cell_type": "markdown", "source": ["# Title"]}, {"cell_type": "code", "source": "1 + 1"}],
    }
).encode()
OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
SHOW = "print(open(sys.argv[1], 'rb').read().decode('latin-1'))"
DOCUMENTS = {
    "a.docx": (make_docx(), DOCX),
    "a.xlsx": (make_xlsx(), XLSX),
    "a.pptx": (make_pptx(), PPTX),
    "a.odt": (make_odt(), ODT),
    "a.epub": (make_epub(), "# Chapter\n\nText"),
    "a.pdf": (
        make_pdf(PAGE, PAGE),
        "<!-- page 1 -->\nHello (PDF) wörld\nSecond line\n\n<!-- page 2 -->\nHello (PDF) wörld\nSecond line",
    ),
    "wide.pdf": (
        make_pdf(b"BT /F1 9 Tf 72 700 Td <000100020003> Tj ET", font=b"/Type0", extra=TYPE0, more={4: WIDE, 5: CID}),
        "<!-- page 1 -->\nabc",
    ),
    "a.html": (b"<title>T</title><p>Text</p>", "# T\n\nText"),
    "a.csv": (b"a,b\n1,2\n", "| a | b |\n| --- | --- |\n| 1 | 2 |"),
    "a.json": (b'{"a":1}', '```json\n{\n  "a": 1\n}\n```'),
    "a.ods": (make_ods(), "## T\n\n| a | b |\n| --- | --- |\n| 1 |  |"),
    "a.odp": (make_odp(), "First\n\nSecond"),
    "a.tsv": (b'a\tb\n"1\n2"\t3\n', "| a | b |\n| --- | --- |\n| 1 2 | 3 |"),
    "a.xml": (b"<a>x</a>", "<a>x</a>"),
    "a.md": (b"# x\n\ny", "# x\n\ny"),
    "a.ipynb": (NOTEBOOK, "# Title\n\n```\n1 + 1\n```"),
    "dates.xlsx": (make_dates(), DATES),
    "a.txt": ("ä".encode("cp1252"), "ä"),
    "wrong-name.txt": (make_docx(), DOCX),
}


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path_factory, monkeypatch):
    """Nothing in a folder for temporary files that no other test uses."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.glob("devkit-pi-convert-*")) == []


@pytest.mark.parametrize("name", DOCUMENTS)
async def test_documents_become_markdown(tmp_path, name):
    data, markdown = DOCUMENTS[name]
    (tmp_path / name).write_bytes(data)
    async with open_world(tmp_path) as world:
        found = await world.convert(path=name)
        assert found.pop("metadata").items() >= {"fileName": name, "fileSize": len(data)}.items()
        size = {"truncated": False, "offset": 0, "totalChars": len(markdown)}
        assert found == {"source": name, "provider": "builtin", "content": markdown, **size}


async def test_urls_are_converted(tmp_path):
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    async with open_world(tmp_path, **{"doc": reply(make_docx(), kind), "go": redirect("/doc")}) as world:
        found = await world.convert(url=world.url("/go"))
        assert (found["content"], found["metadata"]["contentType"], found["source"]) == (DOCX, kind, world.url("/go"))
        assert world.site.asked[0].headers["user-agent"] == "devkit-pi-convert/1.0"


@pytest.mark.sample(9)
@pytest.mark.spec("devkit:75")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "INVALID_INPUT"),
        ({"path": "a.docx", "url": "http://public.test/"}, "INVALID_INPUT"),
        ({"path": " ", "url": ""}, "INVALID_INPUT"),
        ({"path": "../out.docx"}, "INVALID_INPUT"),
        ({"path": "/etc/passwd"}, "INVALID_INPUT"),
        ({"path": "link.docx"}, "INVALID_INPUT"),
        ({"path": "folder/out.docx"}, "INVALID_INPUT"),
        ({"path": "a\0b"}, "INVALID_INPUT"),
        ({"path": "gone.docx"}, "FILE_NOT_FOUND"),
        ({"path": "."}, "FILE_NOT_FOUND"),
        ({"path": "pipe"}, "FILE_NOT_FOUND"),
        ({"path": "large.docx"}, "FILE_TOO_LARGE"),
        ({"url": "ftp://public.test/"}, "UNSUPPORTED_PROTOCOL"),
        ({"url": "file:///etc/passwd"}, "UNSUPPORTED_PROTOCOL"),
        ({"url": "nonsense"}, "INVALID_INPUT"),
        ({"url": "http://public.test/gone"}, "NETWORK_ERROR"),
        ({"url": "http://unknown.test/"}, "NETWORK_ERROR"),
        ({"url": "http://public.test/large"}, "FILE_TOO_LARGE"),
        ({"url": "http://public.test/loop"}, "NETWORK_ERROR"),
    ],
)
async def test_sources_are_checked(tmp_path, arguments, code):
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "out.docx").write_bytes(make_docx())
    (work / "link.docx").symlink_to(tmp_path / "out.docx")
    (work / "folder").symlink_to(tmp_path)
    (work / "large.docx").write_bytes(bytes(5001))
    os.mkfifo(work / "pipe")
    async with open_world(work, large=reply(bytes(5001)), loop=redirect("/loop")) as world:
        assert (await world.convert(options={"max_bytes": 5000}, **arguments))["code"] == code


@pytest.mark.spec("devkit:75")
async def test_missing_converter_is_told(tmp_path):
    (tmp_path / "a.docx").write_bytes(make_docx())
    (tmp_path / "a.png").write_bytes(b"\x89PNG....")
    async with open_world(tmp_path) as world:
        found = await world.convert(options={"command": "no-such-converter"}, path="a.docx")
        assert (found["code"], "'no-such-converter' was not found" in found["message"]) == ("COMMAND_NOT_FOUND", True)
        other = await world.convert(path="a.png")
        assert (other["code"], "retinue[convert]" in other["message"]) == ("COMMAND_NOT_FOUND", True)


@pytest.mark.spec("devkit:76")
async def test_private_hosts_are_blocked(tmp_path):
    async with open_world(tmp_path) as world, open_canaries() as (port, heard):
        world.site.answers["/go"] = redirect(f"http://127.0.0.1:{port}/")
        for url in (
            f"http://127.0.0.1:{port}/",
            f"http://[::1]:{port}/",
            f"http://localhost:{port}/",
            world.url("/go"),
        ):
            assert (await world.convert(url=url))["code"] == "PRIVATE_NETWORK_BLOCKED"
        assert heard == []


async def test_calls_may_set_limits(tmp_path):
    (tmp_path / "a.txt").write_text("0123456789")
    async with open_world(tmp_path) as world:
        found = await world.convert(path="a.txt", maxContentChars=4)
        assert (found["content"], found["truncated"], found["totalChars"]) == ("0123", True, 10)
        assert (found["nextOffset"], found["next"]) == (4, "Call convert_content again with offset 4")
        last = await world.convert(path="a.txt", offset=4)
        assert (last["content"], last["truncated"], last["offset"], "next" in last) == ("456789", False, 4, False)
        for wrong in (0, -1, 2.5):
            assert (await world.convert(path="a.txt", maxContentChars=wrong))["content"] == "0123456789"


@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (-1, "offset is '-1': expected a whole number from 0"),
        (2.5, "offset is '2.5': expected a whole number from 0"),
        (10, "offset is 10: the content has 10 characters"),
        (10**400, f"offset is {10**12}: the content has 10 characters"),
    ],
)
async def test_wrong_offset_is_told(tmp_path, offset, message):
    (tmp_path / "a.txt").write_text("0123456789")
    async with open_world(tmp_path) as world:
        found = await world.convert(path="a.txt", offset=offset)
    assert found == {"code": "INVALID_INPUT", "message": message}


def write_program(folder, text):
    program = folder / "converter"
    program.write_text(f"#!{sys.executable} -S\nimport os, sys, time\n{text}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


async def test_own_converter_is_run(tmp_path):
    (tmp_path / "a b.docx").write_bytes(make_docx())
    command = write_program(tmp_path, "print(len(open(sys.argv[1],'rb').read()), sys.argv[1].rsplit('/')[-1])")
    async with open_world(tmp_path) as world:
        found = await world.convert(options={"command": command}, path="a b.docx")
        assert (found["provider"], found["content"]) == ("markitdown", f"{len(make_docx())} a_b.docx\n")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("program", "code", "part"),
    [
        (
            "sys.exit('bad ' + sys.argv[1] + os.environ['HOME'] + '/x' + chr(27))",
            "CONVERT_FAILED",
            "exit code 1: bad a.docx~/x",
        ),
        ("time.sleep(20)", "CONVERT_TIMEOUT", "more than 400 ms"),
        ("os.kill(os.getpid(), 11)", "CONVERT_FAILED", "SIGSEGV"),
        ("print('x' * (9 << 20))", "CONVERT_FAILED", "printed more than"),
        ("sys.stderr.write('y' * (2 << 20)); time.sleep(9)", "CONVERT_FAILED", "printed more than"),
        ("print()", "CONVERT_FAILED", "the converter found no text in it"),
        ("x = bytes(2 << 30)", "CONVERT_FAILED", "MemoryError"),
    ],
)
async def test_failing_converters_are_told(tmp_path, program, code, part):
    (tmp_path / "a.docx").write_bytes(make_docx())
    command = write_program(tmp_path, program)
    async with open_world(tmp_path) as world:
        world.environment["HOME"] = str(tmp_path)
        timeout = {"timeoutMs": 400} if code == "CONVERT_TIMEOUT" else {}
        found = await world.convert(options={"command": command}, path="a.docx", **timeout)
        assert (found["code"], part in found["message"], len(found["message"]) < 1200) == (code, True, True), found
        assert "\x1b" not in json.dumps(found, ensure_ascii=False)


async def test_traces_are_cut_to_their_reason(tmp_path):
    (tmp_path / "a.docx").write_bytes(make_docx())
    command = write_program(tmp_path, "def convert():\n    raise ValueError('no such format')\nconvert()")
    async with open_world(tmp_path) as world:
        found = await world.convert(options={"command": command}, path="a.docx")
        message = "the converter ended with exit code 1: ValueError: no such format"
        assert found == {"code": "CONVERT_FAILED", "message": message}


@asynccontextmanager
async def open_with_markitdown(folder, text, **files):
    """A world that has a program of this name, and documents."""
    (folder / "bin").mkdir()
    os.rename(write_program(folder / "bin", text), folder / "bin" / "markitdown")
    work = folder / "work"
    work.mkdir()
    for name, data in files.items():
        (work / name).write_bytes(data)
    async with open_world(work) as world:
        world.environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        yield world


@pytest.mark.sample(9)
@pytest.mark.parametrize("name", DOCUMENTS)
async def test_own_readers_come_first(tmp_path, name):
    data, markdown = DOCUMENTS[name]
    async with open_with_markitdown(tmp_path, "print('converted')", **{name: data}) as world:
        found = await world.convert(path=name)
        assert (found["provider"], found["content"]) == ("builtin", markdown)


@pytest.mark.parametrize(("name", "data"), [("a.doc", OLD), ("a.pdf", make_pdf(b"")), ("a.zip", pack({"a.txt": "x"}))])
async def test_markitdown_reads_the_rest(tmp_path, name, data):
    async with open_with_markitdown(tmp_path, "print('of', sys.argv[1])", **{name: data}) as world:
        found = await world.convert(path=name)
        assert (found["provider"], found["content"]) == ("markitdown", f"of {name}\n")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "data", "program", "part"),
    [
        ("a.png", b"\x89PNG....", "", "a file of type png; the converter found no text in it"),
        ("a.rtf", b"{\\rtf1 Hello}", SHOW, "a file of type rtf; markitdown returned it unchanged"),
        ("a.pdf", b"%PDF-1.4\nx", SHOW, "the document is damaged: it has no pages; markitdown returned it unchanged"),
        ("a.doc", OLD, "sys.exit('no idea')", "before 2007; the converter ended with exit code 1: no idea"),
        ("a.docx", b"PK\x03\x04garbage", SHOW, "the document is damaged ("),
        ("a.json", b"{", SHOW, "no valid JSON ("),
    ],
)
async def test_converter_without_answer_is_a_failure(tmp_path, name, data, program, part):
    async with open_with_markitdown(tmp_path, program, **{name: data}) as world:
        found = await world.convert(path=name)
        assert (found.get("code"), part in found.get("message", "")) == ("CONVERT_FAILED", True), found
