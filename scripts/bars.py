"""The bars of the security plan: what is measured for each, what it must come to, and the table of both.

Tests tell figures by the fixture `measure`; this file only adds them up and compares. It runs nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Figures = Mapping[str, Any]


class Bar(NamedTuple):
    """One promise with a number."""

    id: str
    text: str
    none: tuple[str, ...] = ()
    """Figures whose sum must be 0."""
    least: Mapping[str, int] = {}
    """Figures that each variant that has them must reach."""
    total: Mapping[str, int] = {}
    """Figures that must reach this together."""
    most: Mapping[str, float] = {}
    """Figures that no variant may exceed."""
    variants: tuple[str, ...] = ()
    """Ways to measure that must all be there."""


class Verdict(NamedTuple):
    """What became of a bar."""

    measured: str
    is_met: bool


BACKENDS = tuple(f"{backend}, {who}" for backend in ("bwrap", "landlock") for who in ("root", "user"))
BARS = (
    Bar(
        "SEC-1",
        "host changes by bash of a read-only agent",
        none=("changes", "dead"),
        least={"commands": 158},
        total={"generated": 10_000},
        variants=(*BACKENDS, "outside, root", "outside, user"),
    ),
    Bar("SEC-2", "attempts inside that succeed", none=("succeeded",), least={"attempts": 46}, variants=BACKENDS),
    Bar(
        "SEC-3",
        "cost of a confined command",
        most={"p50_ms": 10, "p95_ms": 25},
        least={"runs": 200},
        variants=("bwrap", "landlock"),
    ),
    Bar(
        "SEC-4",
        "commands run without a boundary",
        none=("ran",),
        variants=("bwrap hidden", "no namespaces", "no Landlock", "nothing", "switched off"),
    ),
    Bar(
        "SEC-5",
        "files read, programs started, sockets opened before trust",
        none=("files", "programs", "sockets"),
        total={"commands": 8},
    ),
    Bar("SEC-6", "children with more than their parent", none=("wider",), total={"tuples": 10_000, "runs": 200}),
    Bar("SEC-7", "connections to this machine", none=("connections",), total={"urls": 60, "redirects": 50}),
    Bar("SEC-8", "planted secrets found", none=("found",), least={"planted": 25}),
    Bar("SEC-9", "unsafe characters on a terminal", none=("unsafe",), least={"strings": 60}, total={"places": 20}),
    Bar("SEC-10", "programs run by our own git", none=("ran",), total={"vectors": 16}),
    Bar("SEC-11", "files reached through swapped links", none=("escapes",), total={"opens": 100_000}),
    Bar("SEC-12", "attacks without a test", none=("untested",)),
)


def judge(bar: Bar, told: Sequence[Figures], *, has_failed: bool = False, lacks: Sequence[str] = ()) -> Verdict:
    """What the tests of a bar told, and whether that is enough; `lacks` are words of variants that cannot be here."""
    if not told:
        return Verdict("not measured", False)
    names = list(dict.fromkeys(name for figures in told for name in figures if name != "variant"))
    values = {name: [figures[name] for figures in told if name in figures] for name in names}
    missing = [variant for variant in bar.variants if variant not in {figures["variant"] for figures in told}]
    absent = [variant for variant in missing if set(variant.split(", ")) & set(lacks)]
    missing = [variant for variant in missing if variant not in absent]
    is_met = (
        not has_failed and not missing and set(bar.none) | set(bar.least) | set(bar.total) | set(bar.most) <= {*names}
    )
    parts = []
    for name, found in values.items():
        if name in bar.most:
            parts.append(f"{name} {max(found):.1f}")
            is_met = is_met and max(found) <= bar.most[name]
        elif name in bar.least:
            parts.append(f"{name} {min(found):,}{f' in each of {len(found)}' if len(found) > 1 else ''}")
            is_met = is_met and min(found) >= bar.least[name]
        else:
            parts.append(f"{name} {sum(found):,}")
            is_met = is_met and (name not in bar.none or sum(found) == 0) and sum(found) >= bar.total.get(name, 0)
    parts += [f"missing: {'; '.join(missing)}"] if missing else []
    parts += [f"not on this machine: {'; '.join(absent)}"] if absent else []
    return Verdict(", ".join(parts), is_met)


def describe(bar: Bar) -> str:
    """What a bar asks for, in a few words."""
    parts = [f"{name} 0" for name in bar.none]
    parts += [f"{name} at least {number:,}" for name, number in {**bar.least, **bar.total}.items()]
    parts += [f"{name} at most {number:g}" for name, number in bar.most.items()]
    return ", ".join(parts)


def render_table(verdicts: Mapping[str, Verdict]) -> Iterator[str]:
    """Bar, what it asks for, what was measured, ok or short."""
    for bar in BARS:
        verdict = verdicts[bar.id]
        yield f"{bar.id:<7} {'ok' if verdict.is_met else 'short':<6} {bar.text}"
        yield f"{'':<14} bar: {describe(bar)}"
        yield f"{'':<14} measured: {verdict.measured}"
