"""Schedules whose runs work on workers: each due time has one run there, whatever happens to the face."""

import json
import os
import random
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.timeout(120)
JOBS = 4


def open_rpc(world, session):
    words = ["--mode", "rpc", "--model", "mock/mock-1", "--session", str(session)]
    return subprocess.Popen(
        [sys.executable, "-m", "retinue", *words],
        env={**os.environ, "RETINUE_DATABASE": world.database},
        cwd=world.project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_until(face, kind, **fields):
    for line in face.stdout:
        record = json.loads(line)
        if record["type"] == kind and all(record.get(name) == value for name, value in fields.items()):
            return record
    raise AssertionError(face.stderr.read())


def say(face, text):
    face.stdin.write(json.dumps({"type": "prompt", "message": text}) + "\n")
    face.stdin.flush()


def end(face):
    face.kill()
    face.communicate()


def schedule(number):
    arguments = {"prompt": f"Task {number}.", "description": f"task {number}", "schedule": f"+{number + 1}s"}
    return {"name": "Agent", "arguments": {**arguments, "subagent_type": "general-purpose"}}


def plan(world):
    main, child = {"match": {"first_user": "^Later"}}, {"match": {"first_user": "^Task"}}
    calls = [schedule(number) for number in range(JOBS)]
    world.play({"calls": calls, **main}, {"text": "Noted.", **main}, world.act(1, **child), {"text": "Done.", **child})


def read_tasks(world):
    tasks = world.ask("SELECT assignment->>'task' FROM retinue.runs")
    return sorted(task.partition("\n<active_agent ")[0] for (task,) in tasks)


def test_each_due_time_runs_once(world, tmp_path):
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance, session = random.Random(seed), tmp_path / "main.jsonl"
    plan(world)
    world.start_worker()
    face = open_rpc(world, session)
    say(face, "Later.")
    read_until(face, "agent_settled")
    for _ in range(JOBS - 1):
        # Around the next due time; a process takes about a second to start.
        time.sleep(chance.uniform(0, 1))
        end(face)
        face = open_rpc(world, session)
        face.stdin.write('{"type": "get_state"}\n')
        face.stdin.flush()
        read_until(face, "response", command="get_state")
    try:
        all_done = "SELECT count(*) FROM retinue.runs WHERE finished IS NOT NULL"
        world.wait_until(lambda: world.has_runs() and world.ask(all_done) == [(JOBS,)], "all have run")
        time.sleep(1)
    finally:
        end(face)
    assert read_tasks(world) == [f"Task {number}." for number in range(JOBS)], seed
    assert len(set(world.effects)) == len(world.effects) == JOBS


@pytest.mark.slow
def test_second_face_fires_nothing(world, tmp_path):
    session = tmp_path / "main.jsonl"
    plan(world)
    world.start_worker()
    first = open_rpc(world, session)
    say(first, "Later.")
    read_until(first, "agent_settled")
    second = open_rpc(world, session)
    try:
        _, problem = second.communicate(timeout=30)
        all_done = "SELECT count(*) FROM retinue.runs WHERE finished IS NOT NULL"
        world.wait_until(lambda: world.has_runs() and world.ask(all_done) == [(JOBS,)], "all have run")
    finally:
        end(first)
    assert (second.returncode, f"process {first.pid}" in problem) == (1, True), problem
    assert read_tasks(world) == [f"Task {number}." for number in range(JOBS)]
