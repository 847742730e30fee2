import os

import pytest

from tests.flows.sandbox_world import list_users, open_box


@pytest.mark.parametrize("backend", ["bwrap", "landlock"])
@pytest.mark.parametrize("writing", [False, True])
def test_commands_leave_no_open_files(backend, writing):
    counts = []
    for _ in range(3):
        with open_box(backend, list_users()[0], writing=writing) as box:
            assert [box.run("echo hi") for _ in range(3)] == [(0, "hi\n")] * 3
        counts.append(len(os.listdir("/proc/self/fd")))
    # The first may open what stays for all.
    assert counts[1:] == counts[:1] * 2
