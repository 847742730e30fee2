"""`retinue models`: what can be asked here."""

import json
import sys

from retinue.app import list_models as find_models
from retinue.cli.options import Options
from retinue.cli.requests import to_request
from retinue.cli.voice import say


def list_models(options: Options) -> int:
    """Print the models, as a table or as JSON."""
    found = find_models(to_request(options), say)
    if options.json:
        json.dump(found, sys.stdout)
        sys.stdout.write("\n")
        return 0
    usable = [row for row in found["models"] if row["available"]]
    width = max(len(f"{row['provider']}/{row['id']}") for row in usable)
    for row in usable:
        ref = f"{row['provider']}/{row['id']}"
        mark = "*" if ref == found["default"] else " "
        sys.stdout.write(f"{mark} {ref:<{width}}  {_in_thousands(row['contextWindow']):>7}  {row['name']}\n")
    others = sorted({row["provider"] for row in found["models"]} - {row["provider"] for row in usable})
    if others:
        say(f"no key for: {', '.join(others)} (--json lists their models too)")
    return 0


def _in_thousands(tokens: int) -> str:
    return f"{tokens / 1_000_000:g}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"
