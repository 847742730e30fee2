"""JSON Schemas of results: checks a schema and a result, and derives a schema from a Python type. Pure.

Tool arguments are checked by `core.schema`, which is fast and forgiving; results are checked by the standard.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from retinue.core.errors import UsageError, quote

MAX_CHARS = 64 * 1024
"""Of a schema: it is sent to the model with every request, and to a child process in an environment variable."""
MAX_FAULTS = 8
INVALID = "SUBAGENT_INVALID_RESULT"
"""The error code of a run whose result does not match its schema."""
_DATA = ("enum", "const", "default", "examples")
_AT_TOP = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const", "not")
"""Keywords that providers refuse at the top of a tool's parameters."""


def check_schema(schema: Any, *, patterns: bool = True) -> dict[str, Any]:
    """Return a schema with which results can be checked. Raises UsageError.

    Without `patterns`, regular expressions are refused: a slow one would block the program.
    """
    if not isinstance(schema, dict):
        raise UsageError(f"expected a JSON Schema, which is an object, found {quote(schema)}")
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot be written as JSON: {error}") from None
    if size > MAX_CHARS:
        raise UsageError(f"has {size} characters; expected at most {MAX_CHARS}")
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        _open_validator(schema).check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"not a valid JSON Schema: {_place(error.absolute_path)}{error.message[:300]}") from None
    places = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
    for part in _walk(schema):
        reference = part.get("$ref")
        if isinstance(reference, str):
            if not reference.startswith("#"):
                raise UsageError(f"$ref {quote(reference)}: only references inside the schema (#…) are followed")
            try:
                places.lookup(reference)
            except Unresolvable:
                raise UsageError(f"$ref {quote(reference)}: there is no such place in the schema") from None
        if not patterns and (isinstance(part.get("pattern"), str) or "patternProperties" in part):
            raise UsageError("`pattern` is accepted in agent files only; describe the form in `description`")
    return schema


def parse_schema(data: bytes | str) -> Any:
    """Return the JSON value of a schema file. Raises UsageError."""
    if len(data) > MAX_CHARS:
        raise UsageError(f"larger than {MAX_CHARS} bytes, the limit for a schema")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}") from None


def find_fault(value: Any, schema: Mapping[str, Any]) -> str:
    """Return why a value does not match a schema, each fault with its place; empty if it matches."""
    try:
        errors = sorted(_open_validator(schema).iter_errors(value), key=lambda error: list(map(str, error.path)))
    except RecursionError:
        return "the schema refers to itself without end, so nothing matches it"
    texts = [f"{_place(error.absolute_path)}{error.message[:300]}" for error in errors[:MAX_FAULTS]]
    rest = [f"and {len(errors) - MAX_FAULTS} more"] if len(errors) > MAX_FAULTS else []
    return "; ".join(texts + rest)


def to_parameters(schema: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the parameters of a tool that takes such a result, and whether the result is their field `result`."""
    top = dict(schema)
    reference = str(top.get("$ref", ""))
    if reference.startswith("#/$defs/"):  # msgspec describes a class in this way
        shared, name = dict(top.get("$defs", {})), reference.removeprefix("#/$defs/")
        top = dict(shared.get(name, {}))
        if json.dumps(schema).count(json.dumps(reference)) == 1:
            del shared[name]
        top |= {"$defs": shared} if shared else {}
    if top.get("type") == "object" and not any(word in top for word in _AT_TOP):
        return top, False
    shared = {word: schema[word] for word in ("$defs", "definitions") if word in schema}
    return {"type": "object", "properties": {"result": dict(schema)}, "required": ["result"], **shared}, True


def derive_schema(kind: Any) -> dict[str, Any]:
    """Return the schema of a dataclass, msgspec Struct, pydantic model or other type. Raises UsageError."""
    if isinstance(kind, Mapping):
        return check_schema(dict(kind))
    if callable(make := getattr(kind, "model_json_schema", None)):
        return check_schema(make())
    import msgspec

    try:
        return check_schema(msgspec.json.schema(kind))
    except (TypeError, NameError) as error:
        raise UsageError(
            f"output {quote(kind)}: expected a dataclass, a msgspec Struct, a pydantic model or a schema: {error}"
        ) from None


def convert_result(value: Any, kind: Any) -> Any:
    """Return a result as an object of the type that its schema was derived from. Raises UsageError."""
    if isinstance(kind, Mapping):
        return value
    import msgspec

    try:
        if callable(validate := getattr(kind, "model_validate", None)):
            return validate(value)
        return msgspec.convert(value, kind)
    except ValueError as error:  # also of msgspec and of pydantic
        raise UsageError(f"the result is not a {getattr(kind, '__name__', kind)}: {error}") from None


def parse_result(text: str) -> Any:
    """Return the JSON value that a text consists of, with or without a Markdown fence. Raises ValueError."""
    text = text.strip()
    if text.startswith("```") and text.endswith("```") and "\n" in text:
        text = text.partition("\n")[2].removesuffix("```")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _open_validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    # An own registry, since the default one loads what a reference names from the network.
    return validator_for(schema, default=Draft202012Validator)(schema, registry=Registry())


def _walk(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema that may be a schema itself."""
    if isinstance(schema, dict):
        yield schema
        for name, part in schema.items():
            if name not in _DATA:
                yield from _walk(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _walk(part)


def _place(path: Any) -> str:
    place = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"{place}: " if place else ""
