import asyncio
import os
import time

from retinue.tools import process
from retinue.tools.process import ProcessCommand, run_process


def test_process_that_dies_late_is_reaped_without_a_loop(monkeypatch, tmp_path):
    monkeypatch.setattr(process, "_REAP_S", 0)
    seen = asyncio.Event()
    pids: list[int] = []

    def take(data: bytes) -> None:
        pids.append(int(data))
        seen.set()

    async def cancel() -> None:
        command = ProcessCommand(["/bin/sh", "-c", "echo $$; exec sleep 60"], str(tmp_path), dict(os.environ))
        running = asyncio.ensure_future(run_process(command, on_output=take))
        await seen.wait()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(cancel())
    deadline = time.monotonic() + 20
    while os.path.exists(f"/proc/{pids[0]}"):
        assert time.monotonic() < deadline, "it was not waited for"
        time.sleep(0.01)
