import asyncio
import os
import resource
import stat
import time
from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed, ToolRetry
from retinue.core.tool import ToolContext, ToolResult
from retinue.tools.process_tree import TreeProbe
from retinue.tools.shell.bash import BashTool

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def trees() -> TreeProbe:
    return TreeProbe()


@pytest.fixture
def bash(trees: TreeProbe) -> BashTool:
    return BashTool(trees)


async def run(tool: BashTool, folder: Path, command: str, **more: object) -> ToolResult:
    return await tool.call({"command": command, **more}, ToolContext(folder, spill_dir=folder / "spill"))


async def test_both_outputs_keep_order(bash: BashTool, tmp_path: Path) -> None:
    command = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
    assert await run(bash, tmp_path, command) == ToolResult.of("out1\nerr1\nout2\nerr2\nout3\nerr3\n")


@pytest.mark.sample(7)
@pytest.mark.parametrize("kind", ["namespace", "supervisor"])
@pytest.mark.parametrize(
    ("command", "ending"),
    [
        ("./plain", "Command exited with code 126"),
        ("nosuchprogram", "Command exited with code 127"),
        ("kill -KILL $$", "Command exited with code 137 (SIGKILL)"),
        ("kill -SEGV $$", "Command exited with code 139 (SIGSEGV)"),
        ("kill -TERM $$", "Command exited with code 143 (SIGTERM)"),
        ("exit 255", "Command exited with code 255"),
        ("trap '' TERM; kill 0; exit 5", "Command exited with code 5"),
        ("exit 1", "(no output)\n\nCommand exited with code 1"),
    ],
)
async def test_exit_status_is_exact(kind: str, command: str, ending: str, tmp_path: Path) -> None:
    (tmp_path / "plain").touch(mode=0o644)
    result = await run(BashTool(TreeProbe(kind=kind)), tmp_path, command)  # type: ignore[arg-type]
    assert (result.content[0].text.endswith(ending), result.is_error) == (True, True)


async def test_long_output_is_spilled(bash: BashTool, tmp_path: Path) -> None:
    result = await run(bash, tmp_path, "seq 1 3000")
    path = Path(result.details["fullOutputPath"])
    text = result.content[0].text
    assert text.startswith("1001\n1002\n")
    assert text.endswith(f"\n3000\n\n[Showing lines 1001-3000 of 3000. Full output: {path}]")
    assert path.read_text() == "".join(f"{number}\n" for number in range(1, 3001))
    assert (stat.S_IMODE(path.stat().st_mode), path.parent) == (0o600, tmp_path / "spill")
    assert result.details["truncation"]["truncatedBy"] == "lines"


async def test_flood_is_bounded(bash: BashTool, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await run(bash, tmp_path, f"head -c {300 * MIB} /dev/zero | tr '\\0' x; echo; echo end")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    path = Path(result.details["fullOutputPath"])
    kept = path.read_bytes()
    assert grown < 64 * 1024
    assert (len(kept) <= 64 * MIB, kept[:4], kept[-5:]) == (True, b"xxxx", b"\nend\n")
    assert b"bytes were not kept here" in kept
    assert "in the middle): " in result.content[0].text
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_one_endless_line_shows_its_end(bash: BashTool, tmp_path: Path) -> None:
    result = await run(bash, tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x; printf END")
    text, note = result.content[0].text.rsplit("\n\n", 1)
    assert (len(text), text[-4:]) == (50 * 1024, "xEND")
    assert note.startswith("[Showing the last 50.0KB of line 1 (2.9MB long). Full output: ")


async def test_full_disk_does_not_fail_command(bash: BashTool, tmp_path: Path) -> None:
    (tmp_path / "spill").write_text("no directory can be made here")
    result = await run(bash, tmp_path, "seq 1 3000")
    assert "The full output could not be kept: " in result.content[0].text
    assert result.is_error is False


async def test_binary_output_is_counted(bash: BashTool, tmp_path: Path) -> None:
    result = await run(bash, tmp_path, r"printf 'a\0b\xff\xe9 h\xc3\xa9'")
    text = "a\ufffdb\ufffd\ufffd hé\n\n[3 bytes are not UTF-8 text and are shown as \ufffd]"
    assert result == ToolResult.of(text)


async def test_split_character_stays_whole(bash: BashTool, tmp_path: Path) -> None:
    result = await run(bash, tmp_path, r"printf '\xe2\x82'; sleep 0.1; printf '\xac'; sleep 0.1; printf '\xc3'")
    assert result.content[0].text == "€\ufffd\n\n[1 bytes are not UTF-8 text and are shown as \ufffd]"


async def test_raw_bytes_are_on_disk(bash: BashTool, tmp_path: Path) -> None:
    result = await run(bash, tmp_path, "head -c 200000 /dev/zero; printf '\\xff\\xfe'")
    kept = Path(result.details["fullOutputPath"]).read_bytes()
    assert kept == bytes(200_000) + b"\xff\xfe"


async def test_pipe_holder_is_not_awaited(tmp_path: Path) -> None:
    # Without a tree nobody ends the holder: the call must return all the same.
    began = time.monotonic()
    result = await run(BashTool(TreeProbe(kind="plain")), tmp_path, "sleep 3 & echo done")
    assert (result.content[0].text, time.monotonic() - began < 1.5) == ("done\n", True)


@pytest.mark.parametrize(
    "command",
    [
        "cat; read line; echo $?",
        "cat < /dev/tty; test -t 0; echo $?",
        "git init -q . && git -c user.name=a -c user.email=a@b commit --allow-empty; echo $?",
    ],
)
async def test_nothing_waits_for_input(bash: BashTool, tmp_path: Path, command: str) -> None:
    began = time.monotonic()
    result = await run(bash, tmp_path, command)
    assert (result.content[0].text.endswith("1\n"), time.monotonic() - began < 3) == (True, True)


async def test_long_command_goes_through_file(bash: BashTool, tmp_path: Path) -> None:
    command = f"x='{'a' * 2_000_000}'; echo ${{#x}}; exit 3"
    result = await run(bash, tmp_path, command)
    assert result.content[0].text == "2000000\n\n\nCommand exited with code 3"


async def test_environment_has_no_secrets(trees: TreeProbe, tmp_path: Path) -> None:
    inherited = {
        "PATH": os.environ["PATH"],
        "OPENAI_API_KEY": "k1",
        "HF_TOKEN": "k2",
        "STRIPE_API_KEY": "k1",
        "GOPATH": "/go",
    }
    tool = BashTool(trees, environment=inherited)
    context = ToolContext(tmp_path, environment={"PI_MODEL": "m"})
    result = await tool.call({"command": "env | sort; cat /proc/*/environ | tr '\\0' '\\n' | grep -c k[12]"}, context)
    text = result.content[0].text
    assert [line for line in text.splitlines() if "KEY" in line or "TOKEN" in line or "MODEL" in line] == ["PI_MODEL=m"]
    assert "GOPATH=/go\n" in text
    assert "PAGER=cat\n" in text and "\n0\n" in text


async def test_progress_is_rare_and_whole(bash: BashTool, tmp_path: Path) -> None:
    seen: list[ToolResult] = []
    context = ToolContext(tmp_path, progress=seen.append)
    began = time.monotonic()
    await bash.call({"command": "for i in $(seq 1 60); do echo $i; sleep 0.01; done"}, context)
    assert 3 <= len(seen) <= (time.monotonic() - began) / 0.1 + 3
    assert seen[:2] == [ToolResult([]), ToolResult.of("1\n", {})]
    assert seen[-1].content[-1].text.endswith("\n60\n")


async def test_loop_stays_free_during_flood(bash: BashTool, tmp_path: Path) -> None:
    worst = 0.0
    call = asyncio.ensure_future(run(bash, tmp_path, f"head -c {100 * MIB} /dev/urandom"))
    while not call.done():
        began = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - began)
    assert worst < 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "command is missing"),
        ({"command": 5}, "command is '5'"),
        ({"command": " \n"}, "not blank"),
        ({"command": "echo \0"}, "NUL"),
        ({"command": "echo \ud800"}, "lone surrogate"),
        ({"command": "true", "timeout": -1}, "timeout is '-1': expected a number of seconds above 0"),
        ({"command": "true", "timeout": 0}, "timeout is '0'"),
        ({"command": "true", "timeout": "5s"}, "timeout is '5s'"),
        ({"command": "true", "timeout": 1e12}, "at most 2147483"),
        ({"command": "true", "timeout": float("nan")}, "timeout is 'nan'"),
        ({"command": "true", "timeout": True}, "timeout is 'True'"),
    ],
)
async def test_bad_arguments_are_named(bash: BashTool, tmp_path: Path, arguments: dict, message: str) -> None:
    with pytest.raises(ToolRetry, match=r"^[a-z]+ is ") as caught:
        await bash.call(arguments, ToolContext(tmp_path))
    assert message in str(caught.value)


async def test_missing_folder_is_named(bash: BashTool, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match=r"working directory '.*/gone' does not exist"):
        await run(bash, tmp_path / "gone", "true")


async def test_missing_shell_is_an_error(trees: TreeProbe, tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="shellPath: '/nonexistent/bash' is not a program"):
        await run(BashTool(trees, shell="/nonexistent/bash"), tmp_path, "true")


async def test_other_shell_is_stated(trees: TreeProbe, tmp_path: Path) -> None:
    result = await run(BashTool(trees, shell="/bin/sh"), tmp_path, "echo hi")
    assert result.content[0].text == "hi\n\n\n[The command was run by /bin/sh, not by bash]"
