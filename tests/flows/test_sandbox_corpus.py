import random
from collections.abc import Callable

import pytest

from retinue.sandbox.status import Backend
from tests.flows.sandbox_world import (
    BACKENDS,
    Box,
    Who,
    World,
    copy_world,
    is_here,
    list_users,
    load_lines,
    open_box,
    open_world,
)
from tests.needs import explain_lack

CORPUS = load_lines("bash_corpus.txt", 3)
READING = load_lines("reading_commands.txt", 2)
CASES = ("B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8", "B9", "B10", "B11", "B12", "B13", "B16")
LEAST = 158
"""Commands of the plan that this corpus grew from."""
Measure = Callable[..., None]


def has_effect(world: World, command: str, need: str = "-") -> bool:
    with copy_world(world) as copy:
        before = copy.digest()
        copy.run_bare(command, own_mounts=need.startswith("mounts"))
        return copy.digest() != before


def find_escapes(box: Box, commands: list[str]) -> list[str]:
    escaped = []
    before = box.world.digest()
    for command in commands:
        _, text = box.run(command)
        after = box.world.digest()
        if after != before or "ESCAPED" in text:
            escaped.append(command)
            before = after
    return escaped


@pytest.mark.attack(*CASES)
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_sampled_commands_change_nothing(backend: Backend, who: Who) -> None:
    sample = [(need, command) for _, need, command in CORPUS[::9] if is_here(need, who, inside=True)]
    with open_box(backend, who) as box:
        dead = [
            command for need, command in sample[:6] if is_here(need, who) and not has_effect(box.world, command, need)
        ]
        assert (find_escapes(box, [command for _, command in sample]), dead) == ([], [])


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.attack(*CASES, "SEC-1")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_command_changes_anything(backend: Backend, who: Who, measure: Measure) -> None:
    commands = [command for _, need, command in CORPUS if is_here(need, who, inside=True)]
    with open_box(backend, who) as box:
        escaped = find_escapes(box, commands)
    measure("SEC-1", f"{backend}, {who}", changes=len(escaped), commands=len(commands))
    assert (escaped, len(commands) >= LEAST) == ([], True)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.attack(*CASES, "SEC-1")
@pytest.mark.parametrize("who", list_users())
def test_every_command_is_live_outside(who: Who, measure: Measure) -> None:
    commands = [(command, need) for _, need, command in CORPUS if is_here(need, who)]
    with open_world(who) as world:
        dead = [command for command, need in commands if not has_effect(world, command, need)]
    measure("SEC-1", f"outside, {who}", dead=len(dead), live=len(commands) - len(dead))
    assert dead == []


def find_failures(box: Box, commands: list[tuple[str, ...]]) -> list[tuple[str, int, str]]:
    """What does not work of commands that only read; none may leave anything."""
    before = box.world.digest()
    results = [(command, *box.run(command)) for need, command in commands if is_here(need, box.world.who)]
    assert box.world.digest() == before
    return [result for result in results if result[1]]


@pytest.mark.attack("B24")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_sampled_reading_commands_work(backend: Backend, who: Who) -> None:
    with open_box(backend, who) as box:
        assert find_failures(box, READING[::5]) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.attack("B24")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_reading_commands_work_unchanged(backend: Backend, who: Who) -> None:
    with open_box(backend, who) as box:
        failures = find_failures(box, READING)
    # Under Landlock nobody changes modes and times, not even of temporary files.
    assert [command for command, _, _ in failures if backend == "bwrap" or "$TMPDIR" not in command] == []
    assert sum(is_here(need, who) for need, _ in READING) >= 42


VERBS = [
    "touch {}",
    "echo x >{}",
    "echo x >>{}",
    "rm -rf {}",
    "mv a.txt {}",
    "cp a.txt {}",
    "ln -sf a.txt {}",
    "mkdir -p {}",
]
VERBS += ["tee {} <a.txt", "dd if=a.txt of={} status=none", "chmod 600 {}", "truncate -s0 {}", "sed -i s/o/0/ {}"]
TARGETS = ["pwn", "a.txt", "del.txt", ".git/config", ".git/hooks/x", "$H/.bashrc", "$H/new", "$T", "../pwn", "./.pi/x"]
FRAMES = ["{}", "( {} )", "{{ {}; }}", "true && {}", "false || {}", "{} &", "bash -c '{}'", "echo $({})", "eval '{}'"]
FRAMES += ["f() {{ {}; }}; f", "for i in 1; do {}; done", "env sh -c '{}'", "nice {}", "trap '{}' EXIT", "cd .git; {}"]


def generate(dice: random.Random, count: int) -> list[str]:
    lines = []
    for _ in range(count):
        line = dice.choice(VERBS).format(dice.choice(TARGETS))
        for _ in range(dice.randrange(3)):
            frame = dice.choice(FRAMES)
            line = frame.format(line if "'" not in frame else line.replace("'", "'\\''"))
        lines.append(f"( {line} ) 2>/dev/null")
    return lines


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.attack("B1", "B6", "SEC-1")
@pytest.mark.parametrize("who", list_users())
@pytest.mark.parametrize("backend", BACKENDS)
def test_generated_commands_change_nothing(backend: Backend, who: Who, measure: Measure) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print("seed", seed)
    usable = [each for each in BACKENDS if not explain_lack(each)]
    lines = generate(random.Random(seed), 10_000 // len(usable or BACKENDS) // len(list_users()))
    with open_box(backend, who) as box:
        live = [has_effect(box.world, line) for line in lines[:60]]
        batches = ["\n".join([*lines[at : at + 100], "wait"]) for at in range(0, len(lines), 100)]
        escaped = find_escapes(box, batches)
    measure("SEC-1", f"generated, {backend}, {who}", changes=len(escaped), generated=len(lines))
    assert (escaped, sum(live) > 30) == ([], True)
