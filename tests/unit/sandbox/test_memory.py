import os
from pathlib import Path

import pytest

from retinue.sandbox import cgroup


def test_command_has_a_share_of_what_there_is() -> None:
    assert cgroup.find_bound() == int(cgroup.find_memory() * 0.75) > 0
    assert cgroup.find_bound(5) == 5


@pytest.mark.parametrize(("text", "bytes_"), [("4096\n", 4096), ("max\n", None), ("9223372036854771712\n", None)])
def test_container_may_have_less(
    text: str, bytes_: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "limit").write_text(text)
    monkeypatch.setattr(cgroup, "_LIMITS", (str(tmp_path / "missing"), str(tmp_path / "limit")))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert cgroup.find_memory() == (bytes_ or machine)
