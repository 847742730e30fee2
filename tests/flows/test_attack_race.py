"""Our own git calls while an agent's command turns the repository into another one and back."""

import subprocess
import sys

import pytest

from retinue.features.changed_files import find_changed_files, list_files
from retinue.testing import make_repo

FLIP = """
import os
print("ready", flush=True)
while True:
    with open(".git/commondir", "w") as file:
        file.write("../other/.git")
    for pause in range(3000):
        pass
    os.unlink(".git/commondir")
    for pause in range(3000):
        pass
"""


@pytest.mark.attack("J2")
async def test_pointer_put_between_two_looks_starts_no_filter(tmp_path):
    work, mark = tmp_path / "work", tmp_path / "ran"
    work.mkdir()
    make_repo(work, {"a.txt": "a\n", ".gitattributes": "*.txt filter=bad\n"})
    (work / "other").mkdir()
    subprocess.run(["git", "init", "-q"], cwd=work / "other", check=True)
    (work / "other/.git/objects/info/alternates").write_text(f"{work}/.git/objects\n")
    subprocess.run(["git", "config", "filter.bad.clean", f"touch {mark}; cat"], cwd=work / "other", check=True)
    with subprocess.Popen([sys.executable, "-c", FLIP], cwd=work, stdout=subprocess.PIPE) as flip:
        try:
            flip.stdout.readline()
            for number in range(60):
                (work / "a.txt").write_text(str(number % 10) + "\n")
                before = await list_files(str(work))
                await find_changed_files(before)
                before.close()
                assert not mark.exists(), number
        finally:
            flip.kill()
