"""`python -m bench [NAME…]`: take the figures, print them, keep them in bench/RESULTS.md.

A report: it ends with 0 whatever the figures say, and with 1 only when something could not be measured.
"""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figure import Figure, describe_machine, render_table

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
# Name, module, function: imported one by one, so that one that is broken does not stop the others.
BENCHES = {
    "load": ("bench.load", "measure"),
    "memory": ("bench.memory", "measure"),
    "help": ("bench.start", "measure_help"),
    "start": ("bench.start", "measure_first_request"),
    "agents": ("bench.start", "measure_agents"),
    "history": ("bench.history", "measure"),
    "long": ("bench.longsession", "measure"),
    "fleet": ("bench.fleet", "measure"),
    "children": ("bench.children", "measure"),
    "crash": ("bench.crash", "measure"),
    "crew-crash": ("bench.crew_crash", "measure"),
    "durable": ("bench.durable", "measure"),
    "sandbox": ("bench.sandbox", "measure"),
    "web": ("bench.web", "measure"),
    "lsp": ("bench.lsp", "measure"),
    "ui": ("bench.ui", "measure"),
    "serve": ("bench.serve", "measure"),
    "cluster": ("bench.cluster", "measure"),
    "scale": ("bench.cluster_scale", "measure"),
    "storm": ("bench.cluster_storm", "measure"),
}
# Only by name: it installs programs of others.
EXTRA = {"peers": ("bench.peers", "measure")}


def main(names: list[str]) -> int:
    """Run the named benches, or all."""
    known = BENCHES | EXTRA
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"bench: no such figure: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    figures: list[Figure] = []
    failed: list[str] = []
    for name in names or BENCHES:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        module, function = known[name]
        try:
            measure: Callable[[], Iterator[Figure]] = getattr(importlib.import_module(module), function)
            figures += measure()
        except Exception:  # noqa: BLE001 - the others are still worth having
            traceback.print_exc()
            failed.append(name)
    table = render_table(figures)
    if figures:
        print(table)
    if not names:
        RESULTS.write_text(render_page(table, failed), encoding="utf-8")
    if failed:
        print(f"bench: could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def render_page(table: str, failed: list[str]) -> str:
    """The results as a page, which says what is missing in it."""
    missing = f"\nCould not be measured: {', '.join(failed)}.\n" if failed else ""
    return f"""# Figures

Written by `make bench`, on {describe_machine()}.
Everything is measured in one run against a bare aiohttp client (`bench/bare.py`) that plays the same conversations with
the same mock server: first token after 50 ms, 5 ms between chunks, five tool turns, an answer of 200 tokens.

{table}
{missing}"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
