import os
import struct
import subprocess
import sys
import time

import pytest

from retinue.core.launch import Confinement
from retinue.tools.convert import child
from retinue.tools.convert.converter import list_packages
from tests.flows.document_world import DOCX, PAGE, R, W, make_bomb, make_docx, make_lying_zip, make_pdf, pack
from tests.flows.sandbox_world import BACKENDS, Box, need_status
from tests.flows.web_world import open_world

BODY = f'<w:document xmlns:w="{W}" xmlns:r="{R}"><w:body><w:p><w:r><w:t>&x;</w:t></w:r></w:p></w:body></w:document>'


async def convert(folder, data, name="a.docx", **options):
    (folder / name).write_bytes(data)
    async with open_world(folder) as world:
        found = await world.convert(path=name, options=options)
        return found.get("message", found.get("content"))


def make_links():
    import io
    import zipfile

    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as package:
        entry = zipfile.ZipInfo("word/document.xml")
        entry.external_attr = 0o120777 << 16
        package.writestr(entry, "/etc/passwd")
    return file.getvalue()


def make_overlap():
    data = make_docx()
    place = data.find(b"PK\x01\x02", data.find(b"PK\x01\x02") + 4)
    return data[: place + 42] + struct.pack("<L", 0) + data[place + 46 :]


@pytest.mark.attack("D9")
@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: pack({"word/document.xml": bytes(64 << 20)}), "far more than its own"),
        (lambda: make_lying_zip(60 << 20), "damaged"),
        (lambda: pack({f"{n}": b"" for n in range(6000)}), "parts"),
        (lambda: pack({"../../evil": b"x", "word/document.xml": b"<a/>"}), "outside of itself"),
        (lambda: pack({"/etc/evil": b"x"}), "outside of itself"),
        (lambda: pack({"word/document.xml": pack({"a": bytes(1 << 20)})}), "not read"),
        (make_links, "a link in it"),
        (make_overlap, "parts of the document overlap"),
    ],
    ids=["ratio", "lying", "many", "parent", "absolute", "nested", "link", "overlap"],
)
async def test_packed_documents_do_not_grow(tmp_path, make, part):
    begun_s = time.monotonic()
    assert part in await convert(tmp_path, make())
    assert time.monotonic() - begun_s < 30


@pytest.mark.attack("D9")
async def test_foreign_converter_sees_no_bomb(tmp_path):
    (tmp_path / "touch").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "touch").chmod(0o755)
    bomb = pack({"word/document.xml": bytes(64 << 20)})
    assert "far more" in await convert(tmp_path, bomb, command=str(tmp_path / "touch"))
    assert not (tmp_path / "called").exists()


@pytest.mark.attack("D10")
@pytest.mark.parametrize(
    "prolog",
    [
        "<!DOCTYPE d [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>",
        "<!DOCTYPE d [<!ENTITY a 'aaaaaaaaaa'><!ENTITY b '&a;&a;&a;&a;'><!ENTITY x '&b;&b;&b;&b;'>]>",
        "<!DOCTYPE d [<!ENTITY % p SYSTEM 'http://127.0.0.1:1/'> %p; <!ENTITY x 'y'>]>",
    ],
)
async def test_entities_in_documents_stay_shut(tmp_path, prolog):
    text = await convert(tmp_path, pack({"word/document.xml": prolog + BODY}))
    assert "declares entities" in text and "root:" not in text


@pytest.mark.attack("D10")
async def test_deep_xml_is_refused(tmp_path):
    text = await convert(tmp_path, pack({"word/document.xml": "<a>" * 100_000}))
    assert "nested elements" in text


@pytest.mark.sample(7)
@pytest.mark.attack("D11")
@pytest.mark.parametrize(
    ("data", "name", "part"),
    [
        (b"%PDF-1.4\n1 0 obj << /Encrypt 2 0 R >>", "a.pdf", "password"),
        (make_pdf(b"0 0 m 10 10 l S"), "a.pdf", "probably scanned"),
        (b"%PDF-1.4 garbage " * 100, "a.pdf", "no pages"),
        (b"%PDF-1.4\n" + b"1 0 obj " + b"[" * 500_000, "a.pdf", "damaged"),
        (b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 1 0 R /Kids [1 0 R 1 0 R] >>", "a.pdf", "no pages"),
        (b"\xd0\xcf\x11\xe0" + bytes(600), "a.docx", "password"),
        (make_docx()[:300], "a.docx", "damaged"),
        (make_docx().replace(b"word/document", b"word/documenX"), "a.docx", "needs a converter"),
        (b"plain text", "a.docx", "it is not a docx file"),
        (b"", "a.docx", "empty"),
        (b" \n", "a.txt", "empty"),
        (b'{"a":' * 200_000, "a.json", "no valid JSON"),
        (bytes(range(256)) * 50, "a.bin", "needs a converter"),
        (bytes(range(256)) * 50, "a.xlsx", "the document is damaged: it is not a xlsx file"),
        (b"\x1f\x8b" + bytes(99), "a.docx", "the document is damaged: it is not a docx file"),
    ],
)
async def test_broken_documents_are_errors(tmp_path, data, name, part):
    assert part in await convert(tmp_path, data, name)


@pytest.mark.attack("D11")
async def test_stream_bombs_are_refused(tmp_path):
    # The last object of a number counts.
    data = make_pdf(PAGE) + b"\n11 0 obj\n" + make_bomb(2000) + b"\nendobj"
    assert len(data) < 20_000
    assert "needs more than 1024 MiB of memory" in await convert(tmp_path, data, "a.pdf")


@pytest.mark.attack("D11")
async def test_many_pages_end(tmp_path):
    kids = b" ".join([b"3 0 R"] * 100_000)
    data = b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 2 0 R >> endobj 2 0 obj << /Type /Pages /Count 100000 /Kids ["
    data += kids + b"] >> endobj 3 0 obj << /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >> endobj\n"
    assert "no text in its 2000 pages" in await convert(tmp_path, data + b"trailer << /Root 1 0 R >>", "a.pdf")


@pytest.mark.attack("D15")
async def test_text_beside_pages_is_left_out(tmp_path):
    data = make_pdf(PAGE + b" BT /F1 12 Tf -900 700 Td (EVIL) Tj ET BT /F1 12 Tf 72 9000 Td (EVIL) Tj ET")
    found = await convert(tmp_path, data, "a.pdf")
    assert ("Hello" in found, "EVIL" in found) == (True, False)


@pytest.mark.attack("D11")
def test_reader_imports_named_packages_only():
    program = "import sys; sys.path.insert(0, sys.argv[1]); from child import PackageFinder\n"
    program += "sys.meta_path.append(PackageFinder(sys.argv[2])); import pypdfium2\n"
    program += "try: import orjson\nexcept ImportError: print('alone')"
    folder, packages = os.path.dirname(child.__file__), os.pathsep.join(list_packages())
    command = [sys.executable, "-I", "-S", "-c", program, folder, packages]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "alone\n"


class Given:
    """A boundary as a run has it."""

    passed: tuple[str, ...] = ()

    def __init__(self, opened: Confinement | None, *, is_readonly: bool = True) -> None:
        self.opened = opened
        self.is_readonly = is_readonly

    async def open(self):
        return self

    async def open_readonly(self):
        return self.opened


@pytest.mark.attack("D11")
@pytest.mark.parametrize("backend", BACKENDS)
async def test_converter_is_confined(tmp_path, backend):
    from tests.flows.sandbox_world import open_world as open_tree

    status = need_status(backend)
    with open_tree("root" if os.geteuid() == 0 else "user") as tree:
        box = Box(tree, status)
        try:
            work = tree.workspace
            (work / "a.docx").write_bytes(make_docx())
            program = work / "evil"
            tries = ["touch $W/pwn", "cat $H/.ssh/id", "echo x > /dev/tcp/127.0.0.1/9"]
            program.write_text("#!/bin/bash\n" + "\n".join(f"{each} 2>&1" for each in tries) + '\ncat "$1" | wc -c\n')
            program.chmod(0o755)
            before = tree.digest()
            async with open_world(work) as world:
                world.environment |= tree.environment
                own = await world.convert(Given(box.confinement), path="a.docx")
                evil = await world.convert(Given(box.confinement), options={"command": str(program)}, path="a.docx")
            assert (own["content"], tree.digest()) == (DOCX, before)
            assert "PRIVATE KEY" not in evil["content"]
            assert evil["content"].split()[-1] == str(len(make_docx()))
        finally:
            box.close()


@pytest.mark.attack("D11")
async def test_readonly_runs_use_no_loose_program(tmp_path):
    (tmp_path / "a.docx").write_bytes(make_docx())
    (tmp_path / "evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    (tmp_path / "evil").chmod(0o755)
    async with open_world(tmp_path) as world:
        found = await world.convert(Given(None), options={"command": str(tmp_path / "evil")}, path="a.docx")
        assert (found["provider"], found["content"], (tmp_path / "called").exists()) == ("builtin", DOCX, False)


@pytest.mark.attack("D11")
async def test_process_is_bounded(tmp_path):
    (tmp_path / "a.txt").write_text("x")
    (tmp_path / "show").write_text("#!/bin/sh\nulimit -v; ulimit -t; ulimit -c\n")
    (tmp_path / "show").chmod(0o755)
    async with open_world(tmp_path) as world:
        found = await world.convert(options={"command": str(tmp_path / "show")}, path="a.txt")
        assert found["content"].split() == [str(1 << 20), "20", "0"]


@pytest.mark.attack("D9")
async def test_large_parts_are_refused(tmp_path):
    # Far below the ratio of a bomb, and still more than any text.
    block = os.urandom(600) + bytes(40_000)
    data = pack({"word/document.xml": block * 1300})
    assert len(data) < 1 << 20
    assert "'word/document.xml' in the document is larger than" in await convert(tmp_path, data)
