"""`retinue models`: list the available models."""

import sys

from msgspec.structs import replace

from retinue.app import list_models as find_models
from retinue.cli.options import Options
from retinue.cli.prompts import to_request
from retinue.cli.voice import print_json, say
from retinue.core.terminal import escape_line


def list_models(options: Options) -> int:
    """Print the models as a table or as JSON."""
    request, is_whole = to_request(options), True
    if options.refresh:
        from retinue.app import refresh_models

        is_whole = refresh_models(request, say)
        # With `--refresh`, `--provider` says which provider to query; it is not a choice of model.
        request = replace(request, provider=None) if not options.model else request
    found = find_models(request, say)
    if options.json:
        print_json(found)
        return 0 if is_whole else 1
    usable = [row for row in found["models"] if row["available"]]
    refs = [f"{row['provider']}/{row['id']}" for row in usable]
    shown = [escape_line(ref, 200) for ref in refs]
    width = max(map(len, shown))
    for row, ref, text in zip(usable, refs, shown, strict=True):
        mark, name = "*" if ref == found["default"] else " ", escape_line(row["name"], 200)
        sys.stdout.write(f"{mark} {text:<{width}}  {_in_thousands(row['contextWindow']):>7}  {name}\n")
    others = sorted({row["provider"] for row in found["models"]} - {row["provider"] for row in usable})
    if others:
        say(f"no key for: {', '.join(others)} (retinue login stores one; --json lists their models too)")
    return 0 if is_whole else 1


def _in_thousands(tokens: int) -> str:
    return f"{tokens / 1_000_000:g}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"
