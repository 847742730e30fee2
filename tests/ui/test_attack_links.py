"""Attacks through addresses in answers: nothing is fetched or opened, and a link cannot hide where it leads."""

import os
import socket

import pytest

from tests.ui.terminal_world import call

OPENERS = ("xdg-open", "open", "www-browser", "x-www-browser", "sensible-browser", "firefox", "gio", "wslview", "vi")
CLICK = "\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"


def plant_openers(world):
    """Programs that would be started to show something; each leaves its name."""
    folder, marks = world.home.parent / "bin", world.home.parent / "marks"
    folder.mkdir()
    for name in OPENERS:
        (folder / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {marks}\n')
        (folder / name).chmod(0o755)
    chosen = {"BROWSER": str(folder / "firefox"), "EDITOR": str(folder / "vi"), "VISUAL": str(folder / "vi")}
    world.environment |= {**chosen, "PATH": f"{folder}:{os.environ['PATH']}", "DISPLAY": ":9"}
    return marks


def is_called(listener):
    listener.settimeout(0.2)
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


@pytest.mark.attack("D14", "H8")
def test_answers_fetch_and_open_nothing(mocked):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        text = (
            f"![chart]({address}/picture?key=1)\n\n[https://good.example]({address}/hidden)\n\n"
            f"<img src='{address}/tag'>\n\n[ref][1]\n\n<{address}/auto>\n\nfile:///etc/passwd vscode://x\n\n"
            f"[1]: {address}/reference\n\nSHOWN"
        )
        replies = [{"text": text, "calls": [call("bash", command=f"echo '{address}/printed'")]}, {"text": "THEEND"}]
        with mocked(*replies) as world:
            marks = plant_openers(world)
            with world.open(columns=120, rows=50) as terminal:
                terminal.wait_for("mock-1")
                terminal.type("begin\r")
                terminal.wait_for("THEEND")
                # A hand that clicks everywhere.
                for row in range(1, 40, 2):
                    terminal.type("".join(CLICK.format(column=column, row=row) for column in (5, 15, 30)))
                terminal.read(1.0)
                shown = bytes(terminal.output).decode("utf-8", "replace")
                terminal.type("\x04\x03\x04")
                terminal.read(0.3)
        assert (is_called(listener), marks.exists(), "\x1b]8;" in shown) == (False, False, False)
        assert [path for path in ("/hidden", "/auto", "/reference") if address + path not in shown] == []
