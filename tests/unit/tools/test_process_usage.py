import asyncio
import subprocess
import threading

from retinue.tools.process_usage import ExceededLimit, UsageBounds, UsageMonitor


async def test_tasks_of_others_do_not_count():
    told: list[ExceededLimit] = []
    done = threading.Event()
    others = [threading.Thread(target=done.wait) for _ in range(200)]
    with subprocess.Popen(["sleep", "9"]) as quiet:
        census = UsageMonitor(lambda: quiet.pid, "supervisor", UsageBounds(64, 0), told.append)
        for each in others:
            each.start()
        await asyncio.sleep(0.4)
        census.stop()
        done.set()
        quiet.kill()
    assert told == []
