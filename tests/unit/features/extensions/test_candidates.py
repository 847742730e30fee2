import os

import pytest

from retinue.features.extensions import candidates
from retinue.features.extensions.candidates import ExtensionFolders, find_extensions


@pytest.fixture
def look(tmp_path):
    """The names of installed extensions, after an entry point was written."""
    info = tmp_path / "site" / "thing-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: thing\nVersion: 1.0\n")
    places = ExtensionFolders(tmp_path, tmp_path / "agent", search=(str(tmp_path / "site"),))

    def find(group=None):
        if group is not None:
            (info / "entry_points.txt").write_text(f"[{group}]\nown = thing:register\n")
        return [candidate.name for candidate in find_extensions(places).candidates]

    find.file = info / "entry_points.txt"
    return find


def test_changed_metadata_is_seen_at_once(look):
    assert (look(), look("other.things.here.."), look("retinue.extensions")) == ([], [], ["own"])
    look.file.unlink()
    assert (look(), look("retinue.extensions")) == ([], ["own"])


def test_same_metadata_is_read_once(look):
    assert look("retinue.extensions") == ["own"]
    before = candidates._reads_group.cache_info()
    assert (look(), look()) == (["own"], ["own"])
    after = candidates._reads_group.cache_info()
    assert (after.misses - before.misses, after.hits - before.hits) == (0, 2)


@pytest.mark.skipif(os.name != "posix", reason="links")
def test_linked_metadata_is_not_read(look, tmp_path):
    (tmp_path / "elsewhere").write_text("[retinue.extensions]\nown = thing:register\n")
    look.file.symlink_to(tmp_path / "elsewhere")
    assert look() == []
