import json
import os
from pathlib import Path

import pytest

from retinue.definitions.discover import Root, load_accepted, load_root

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
BLOCK = """
  type: object
  properties:
    n: {type: integer, minimum: 1}
  required: [n]
"""


def load(project: Path, text: str, schema: str | None = None):
    folder = project / ".pi" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "judge.md").write_text(f"---\ndescription: d\noutput_schema: {text}\n---\n\nJudge.\n")
    if schema is not None:
        (folder / "judge.json").write_text(schema)
    root = Root(str(folder), "pi", "project", boundary=str(project))
    [found] = load_root(root, {}).files
    return found


@pytest.mark.parametrize(
    ("text", "schema"),
    [(json.dumps(SCHEMA), None), (BLOCK, None), (f"'{json.dumps(SCHEMA)}'", None), ("judge.json", json.dumps(SCHEMA))],
    ids=["flow", "block", "text", "file"],
)
def test_schema_is_read(tmp_path, text, schema):
    found = load(tmp_path, text, schema)
    assert (found.definition.output_schema, found.definition.enabled, found.diagnostics) == (SCHEMA, True, ())


@pytest.mark.parametrize(
    ("text", "schema", "words"),
    [
        ("{type: objekt}", None, "not a valid JSON Schema: type: 'objekt'"),
        ("[a, b]", None, "expected a JSON Schema, which is an object"),
        ("{$ref: 'https://example.com/x.json'}", None, "only references inside the schema"),
        ("missing.json", None, "no such file or directory"),
        ("judge.json", "{", "not JSON"),
        ("judge.json", "[]", "expected a JSON Schema"),
        ("../../../outside.json", None, "leads out of the project"),
        ("linked.json", None, "leads out of the project"),
        ("judge.json", "x" * 70_000, "larger than"),
    ],
)
def test_bad_schema_disables_the_agent(tmp_path, text, schema, words):
    project = tmp_path / "project"
    (project / ".pi" / "agents").mkdir(parents=True)
    (tmp_path / "outside.json").write_text(json.dumps(SCHEMA))
    os.symlink(tmp_path / "outside.json", project / ".pi" / "agents" / "linked.json")
    found = load(project, text, schema)
    [problem] = found.diagnostics
    assert (found.definition.enabled, problem.line, problem.field) == (False, 3, "output_schema")
    assert words in problem.message and problem.message.endswith("the agent is disabled")


def test_misspelt_field_counts(tmp_path):
    path = tmp_path / ".pi" / "agents" / "judge.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\ndescription: d\noutput_shema: {type: object}\n---\n\nJudge.\n")
    [found] = load_root(Root(str(path.parent), "pi", "project"), {}).files
    assert found.definition.output_schema == {"type": "object"}


def test_changed_schema_file_is_seen(tmp_path):
    before = load(tmp_path, "judge.json", json.dumps(SCHEMA))
    folder = tmp_path / ".pi" / "agents"
    (folder / "judge.json").write_text('{"type": "array"}')
    root = Root(str(folder), "pi", "project", boundary=str(tmp_path))
    [after] = load_root(root, {before.path: before}).files
    assert after.definition.output_schema == {"type": "array"}


def test_accepted_file_brings_no_schema_file(tmp_path):
    from hashlib import sha256

    found = load(tmp_path, "judge.json", json.dumps(SCHEMA))
    root = Root(str(tmp_path / ".pi" / "agents"), "pi", "project", boundary=str(tmp_path))
    accepted = {found.path: sha256(Path(found.path).read_bytes()).hexdigest()}
    [again] = load_accepted(root, accepted).files
    assert (again.definition.enabled, "only the agent's file was accepted" in again.diagnostics[0].message) == (
        False,
        True,
    )
