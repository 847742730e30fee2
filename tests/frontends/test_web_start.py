"""What the tools that reach outside cost those who do not use them, and what doctor says about the converter."""

import json
import re

import pytest

OUTSIDE = re.compile(r"'(retinue\.(?:tools\.(?:web|lsp|convert|outbound)|features\.mcp)[\w.]*|aiohttp|mcp|markitdown)'")


@pytest.mark.sample(3)
@pytest.mark.parametrize("args", [("--help",), ("--version",), ("run", "--help"), ("logs",), ("models", "--json")])
def test_start_loads_nothing_of_the_outside(place, args):
    done = place.run(*args, env={"PYTHONVERBOSE": "1"})
    assert (done.status, set(OUTSIDE.findall(done.stderr))) == (0, set())


def find_row(place):
    items = json.loads(place.run("doctor", "--json").stdout)["items"]
    [row] = [item for item in items if item["category"] == "convert"]
    return row


def test_doctor_explains_the_converter(place):
    row = find_row(place)
    assert (row["status"], row["message"]) == ("info", "Documents are read without a converter")
    assert "pdf, docx, xlsx" in row["details"] and "pip install 'retinue[convert]'" in row["details"]
    (place.agent_dir / "subagents.json").write_text('{"convertContent": {"command": "/no/such/converter"}}')
    row = find_row(place)
    assert (row["status"], row["message"]) == ("warn", "Converter '/no/such/converter' not found")
    program = place.root / "converter"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (place.agent_dir / "subagents.json").write_text(json.dumps({"convertContent": {"command": str(program)}}))
    assert find_row(place) == {**row, "status": "pass", "message": "Documents are converted", "details": str(program)}
