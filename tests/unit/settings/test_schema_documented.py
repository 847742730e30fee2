import re
import subprocess
import sys
from pathlib import Path

from retinue.models.catalog import load_catalog
from retinue.settings.paths import PROTECTED

ROOT = Path(__file__).parents[3]


def test_settings_page_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "settings_reference.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr) == ("up to date\n", "")


def test_models_page_names_every_provider() -> None:
    page = (ROOT / "docs" / "reference" / "models.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (.*) \| `([\w-]+)` \|$", page, re.MULTILINE)
    listed = [(id, sorted(re.findall(r"[A-Z]+_[A-Z_]+", variables)), api) for id, variables, api in rows]
    known = [item for item in load_catalog().values() if item.needs_key]
    assert listed == [(item.id, sorted(item.env), item.api) for item in known]


def test_settings_page_names_protected_files() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert [name for name in PROTECTED if f"`{name}`" not in page] == []
