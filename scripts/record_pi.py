"""Records what the real pi prints, writes and sends for the scripted conversations, into tests/data/pi.

Usage: RETINUE_PI=/path/to/pi python scripts/record_pi.py [SCENARIO...]
       RETINUE_PI_DIR=/npm/project python scripts/record_pi.py      (uses its node_modules/.bin/pi)
"""

import json
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from retinue.testing import APIS  # noqa: E402
from tests.interop.handmade import HANDMADE, put_handmade  # noqa: E402
from tests.interop.pi_scenarios import SESSIONS, STREAMS, Scenario  # noqa: E402
from tests.interop.pi_streams import normalise, to_conversation, to_sample  # noqa: E402
from tests.interop.programs import Program, build_home, find_pi, go_on, play, play_wire  # noqa: E402

DATA = ROOT / "tests" / "data" / "pi"


def write_lines(path: Path, records: list[dict[str, object]]) -> None:
    """One JSON object a line."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def record(pi: Program, scenario: Scenario, home: Path) -> None:
    """Play one conversation and keep its stream, its session and what pi sends when it goes on."""
    played = play(pi, scenario, home)
    cwd = str(played.cwd)
    if scenario in STREAMS:
        stream = [record for part in played.streams for record in normalise(part, cwd)]
        write_lines(DATA / f"{scenario.name}.stream.jsonl", stream)
    if scenario in SESSIONS:
        ids: dict[str, str] = {}
        lines = [json.loads(line) for line in played.session.read_text().splitlines()]
        write_lines(DATA / f"{scenario.name}.session.jsonl", [to_sample(line, cwd, ids) for line in lines])
        chat = go_on(pi, scenario, home)
        write_lines(DATA / f"{scenario.name}.next.jsonl", to_conversation(chat.requests[-1], cwd))


def record_reading(pi: Program, name: str, home: Path) -> None:
    """Keep what pi sends when it goes on with a session made by hand."""
    cwd = build_home(home, STREAMS[0])
    put_handmade(name, cwd)
    chat = go_on(pi, STREAMS[0], home)
    write_lines(DATA / f"{name}.next.jsonl", to_conversation(chat.requests[-1], str(cwd)))


def record_wire(pi: Program, api: str, home: Path) -> None:
    """Keep the stream of the wire script over one API."""
    played = play_wire(pi, api, home)
    write_lines(DATA / f"{api}.stream.jsonl", normalise(played.streams[0], str(played.cwd)))


def main() -> int:
    """Record all scenarios, or the named ones."""
    pi = find_pi()
    if pi is None:
        print("record_pi: no pi; RETINUE_PI names it, or RETINUE_PI_DIR an npm project that has it", file=sys.stderr)
        return 2
    DATA.mkdir(parents=True, exist_ok=True)
    wanted = set(sys.argv[1:])
    jobs: dict[str, Callable[[Path], None]] = {one.name: partial(record, pi, one) for one in (*STREAMS, *SESSIONS)}
    jobs |= {name: partial(record_reading, pi, name) for name in HANDMADE}
    jobs |= {api: partial(record_wire, pi, api) for api in APIS}
    for name, job in jobs.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as home:
            job(Path(home).resolve())
        print(f"recorded {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
