from importlib import import_module

import pytest

from retinue.cli.options import COMMANDS, FLAGS, SECTIONS, Options, find_flags, parse_arguments
from retinue.cli.usage import render_usage


@pytest.mark.parametrize("command", COMMANDS)
def test_command_explains_its_flags(command):
    text = render_usage(command)
    rows = find_flags(command)
    assert [name for name, row in rows.items() if name not in text or row[2] not in text] == []
    assert [form for form, about in COMMANDS[command][2] if f"retinue {command} {form}".rstrip() not in text] == []
    assert max(map(len, text.splitlines())) <= 120


def test_general_help_names_commands_and_flags():
    text = render_usage("")
    flags = " ".join(SECTIONS.values()).split()
    assert [name for name in (*COMMANDS, *flags) if name not in text] == []
    assert max(map(len, text.splitlines())) <= 120


def test_every_row_is_used():
    used = {name for command in ("", *COMMANDS) for name in find_flags(command)}
    assert {key.split()[-1] for key in FLAGS} == used


def test_every_flag_has_a_field():
    plain = vars(Options())
    names = {key.split()[-1][2:].replace("-", "_") for key in FLAGS} - {"continue"}
    assert names - set(plain) == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_command_has_its_function(command):
    module, function = COMMANDS[command][0].split(".")
    assert callable(getattr(import_module(f"retinue.cli.{module}"), function))
    assert parse_arguments([command, "--help"]).help
