import re

import pytest

from tests.flows.sandbox_world import list_users, open_box


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("writing", [False, True])
def test_commands_have_no_capabilities(backend, writing):
    for who in list_users():
        with open_box(backend, who, writing=writing) as box:
            _, text = box.run("grep -E '^(Cap|NoNewPrivs)' /proc/self/status")
        found = {name: int(value, 16) for name, value in re.findall(r"(\w+):\s+(\w+)", text)}
        has = {name: found[name] for name in ("CapPrm", "CapEff", "CapAmb", "NoNewPrivs")}
        assert has == {"CapPrm": 0, "CapEff": 0, "CapAmb": 0, "NoNewPrivs": 1}, who
        # What cannot be had again by a program that is installed with more rights.
        assert who != "root" or found["CapBnd"] == 0
