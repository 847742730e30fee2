import os

import pytest

from retinue.features.commands import run_commands_in
from retinue.features.sandbox import Boundaries
from retinue.sandbox.profile import Sandbox
from retinue.tools.registry import ToolOptions
from retinue.tools.shell.bash import BashTool, read_exit_code


def run(place, *commands, **options):
    boundaries = Boundaries(Sandbox(), home=place.parent, agent_dir=place.parent / "agent")
    shell = BashTool.build(ToolOptions(environment=dict(os.environ)))
    return run_commands_in(place, commands, shell, boundaries, **{"timeout_s": 20.0, **options})


async def test_commands_run_until_one_fails(tmp_path):
    (place := tmp_path / "place").mkdir()
    done = await run(place, "echo one > a; cat a", "echo two; exit 3", "echo three > b")
    assert [(each.exit_code, each.output) for each in done] == [
        (0, "one\n"),
        (3, "two\n\n\nCommand exited with code 3"),
    ]
    assert os.listdir(place) == ["a"] and done[0].duration_ms >= 0


async def test_commands_stay_in_their_place(tmp_path):
    (place := tmp_path / "place").mkdir()
    await run(place, f"echo x > {tmp_path}/outside")
    assert not (tmp_path / "outside").exists()


async def test_endless_command_is_ended(tmp_path):
    [done] = await run(tmp_path, "echo begun; sleep 60", timeout_s=0.5)
    assert (done.exit_code, done.is_good) == (None, False)
    assert done.output == "begun\n\n\nCommand timed out after 0.5 seconds"


async def test_long_output_keeps_its_end(tmp_path):
    [done] = await run(tmp_path, "seq 1000", max_chars=20, redact=lambda text: text.replace("1000", "*"))
    assert done.output == "…5\n996\n997\n998\n999\n*\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n\nCommand exited with code 2", 2),
        ("Command exited with code 137 (SIGKILL)", 137),
        ("x\n\nCommand exited with code 0\n\nCommand timed out after 1 seconds", None),
        ("Command exited with code 1\n\nA process of it could not be killed and was left behind", 1),
        ("The working directory 'x' does not exist", None),
    ],
)
def test_exit_status_is_the_last_word(text, code):
    assert (read_exit_code(text, is_error=True), read_exit_code(text, is_error=False)) == (code, 0)
