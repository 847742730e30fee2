from pathlib import Path

import pytest

from retinue.models.scripted import ScriptedModel, parse_script
from tests.run_setup import build_setup

SETUP = build_setup("r", Path("/x"), ScriptedModel(parse_script([])), sections={"a": "b"})


def test_change_leaves_the_original():
    changed = SETUP.change(name="n", tools={})
    assert (changed.name, changed.sections, SETUP.name) == ("n", {"a": "b"}, "")


def test_change_of_unknown_part_fails():
    with pytest.raises(TypeError, match="has no field 'nam'"):
        SETUP.change(nam="n")
