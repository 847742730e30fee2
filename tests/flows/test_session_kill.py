"""A writer is killed at random moments; whatever it had acknowledged is in the file afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
import json, os, random, signal, sys, time
from pathlib import Path
from retinue.core.messages import UserMessage
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

path, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)

def open_session():
    make = dict(clock=FakeClock(), new_id=lambda: str(dice.random()))
    return Session.open(path, **make) if path.exists() else Session.create(cwd="/", directory=None, path=path, **make)

def write(out, life):
    session = open_session()
    for number in range(10**6):
        text = f"{life}-{number} " + "x" * (number % 5 * 400)
        session.append_message(UserMessage(text, 1), sync=number % 10 == 0)
        os.write(out, b"%d\\n" % number)

acked = []
for life in range(kills):
    ins, out = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ins)
        write(out, life)
    os.close(out)
    deadline = time.monotonic() + dice.random() * 0.02
    seen = os.read(ins, 65536)
    while time.monotonic() < deadline:
        seen += os.read(ins, 65536)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    while piece := os.read(ins, 65536):
        seen += piece
    os.close(ins)
    acked += [f"{life}-{number.decode()}" for number in seen.split(b"\\n")[:-1]]

session = open_session()
stored = [message.content.split()[0] for message in session.context().messages]
session.close()
missing = sorted(set(acked) - set(stored))
print(json.dumps({"acked": len(acked), "missing": missing[:5], "doubled": len(stored) - len(set(stored)),
                  "unexplained": len(stored) - len(acked), "damage": str(session.damage)}))
"""


def run(path: Path, kills: int, seed: int) -> dict[str, object]:
    command = [sys.executable, "-c", DRIVER, str(path), str(kills), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def check(result: dict[str, object], kills: int) -> None:
    assert (result["missing"], result["doubled"]) == ([], 0), result
    assert isinstance(result["acked"], int) and result["acked"] > kills
    # At most one entry per life was written and not acknowledged any more.
    assert isinstance(result["unexplained"], int) and result["unexplained"] <= kills


def test_acknowledged_entries_survive_kill(tmp_path: Path) -> None:
    check(run(tmp_path / "s.jsonl", 30, seed=1), 30)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_acknowledged_entries_survive_500_kills(tmp_path: Path) -> None:
    for seed in range(10):
        check(run(tmp_path / f"{seed}.jsonl", 50, seed=seed), 50)


FULL = """
import resource, signal, sys
from pathlib import Path
from retinue.core.errors import SessionUnsaved
from retinue.core.messages import UserMessage
from retinue.sessions.log import Session
from retinue.testing.clock import FakeClock

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, resource.RLIM_INFINITY))
make = dict(clock=FakeClock(), new_id=lambda: "s")
session = Session.create(cwd="/", directory=None, path=Path(sys.argv[1]), **make)
saved = refused = 0
for number in range(30):
    if number == 25:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    try:
        session.append_message(UserMessage(f"{number} " + "x" * 300, 1), sync=True)
        saved += 1
    except SessionUnsaved:
        refused += 1
session.close()
again = Session.open(sys.argv[1], **make)
print(saved, refused, len(again.context().messages), str(again.damage) or "clean")
"""


def test_real_short_writes_are_rolled_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / "s.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    saved, refused, found, damage = done.stdout.split()
    assert (int(saved) + int(refused), found, damage) == (30, saved, "clean"), done.stderr
    assert int(saved) > 10 and int(refused) > 10
