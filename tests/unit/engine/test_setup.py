from dataclasses import replace
from pathlib import Path

import pytest

from retinue.engine.setup import RunSetup
from retinue.models.scripted import ScriptedModel, parse_script

SETUP = RunSetup("r", Path("/x"), ScriptedModel(parse_script([])), sections={"a": "b"})


def test_change_is_what_replace_is():
    assert SETUP.change(name="n", tools={}) == replace(SETUP, name="n", tools={})
    assert SETUP.name == ""


def test_change_of_unknown_part_fails():
    with pytest.raises(TypeError, match="has no nam"):
        SETUP.change(nam="n")
