"""Installs pip into a virtual environment from a package index, for Pythons that come without ensurepip.

Usage: fetch_pip.py VENV. The wheel's hash is the one the index states. Only the standard library is used.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urldefrag, urljoin
from urllib.request import Request, urlopen

ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


def read_locked_index() -> str:
    """The index that uv.lock was made from."""
    lock = Path(__file__).resolve().parent.parent / "uv.lock"
    found = re.search(r'registry = "([^"]+)"', lock.read_text(encoding="utf-8"))
    if found is None:
        raise SystemExit("uv.lock names no package index; set PIP_INDEX_URL")
    return found[1]


def find_wheel(index: str) -> str:
    """Address of the newest pip wheel, with its hash as fragment."""
    page = index.rstrip("/") + "/pip/"
    with urlopen(Request(page, headers={"Accept": ACCEPT}), timeout=30) as answer:
        body, kind = answer.read().decode(), answer.headers.get_content_type()
    if kind.endswith("json"):
        links = [f"{file['url']}#sha256={file['hashes']['sha256']}" for file in json.loads(body)["files"]]
    else:
        links = re.findall(r'href="([^"]+)"', body)
    wheels = [link for link in links if re.search(r"/pip-\d+(\.\d+)*-py3-none-any\.whl", link)]
    return urljoin(page, max(wheels, key=parse_version))


def parse_version(link: str) -> list[int]:
    """The version in a wheel's name, for sorting."""
    found = re.search(r"/pip-([\d.]+)-py3", link)
    return [int(part) for part in found.group(1).split(".")] if found else []


def install_pip(venv: Path) -> None:
    """Fetch the wheel, check it, and let it install itself."""
    index = os.environ.get("PIP_INDEX_URL") or os.environ.get("UV_DEFAULT_INDEX") or read_locked_index()
    address, fragment = urldefrag(find_wheel(index))
    with urlopen(address, timeout=60) as answer:
        wheel = answer.read()
    if fragment.startswith("sha256=") and hashlib.sha256(wheel).hexdigest() != fragment.removeprefix("sha256="):
        sys.exit(f"{address}: the hash is not the one the index states")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / address.rsplit("/", 1)[1]
        path.write_bytes(wheel)
        python = str(venv / "bin" / "python")
        subprocess.run([python, str(path / "pip"), "install", "--quiet", "--no-index", str(path)], check=True)


if __name__ == "__main__":
    install_pip(Path(sys.argv[1]))
