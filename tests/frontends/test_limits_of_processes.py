"""At a usage limit the processes of one main agent send one probe for each reset time, also if one is killed."""

import json
import os
import re
import signal
import time
from pathlib import Path

from retinue.testing.plan import ResponsePlan, render_response
from retinue.testing.server import MockServer

SETTINGS = {"retry": {"maxAgentDelayMs": 500}}
LEAD = "---\ndescription: leads\nallowed_subagents: leaf\n---\nLead."
LEAF = "---\ndescription: works\n---\nWork."
REPLY_MS = 800


class LimitServer(MockServer):
    """Refuses later requests of children until the last of some reset times; each refusal names the next one."""

    def __init__(self, script, *, resets_s, folder):
        super().__init__(script)
        self.resets_s, self.folder = resets_s, folder
        self.closed_s = 0.0
        self.refused: list[int] = []
        """For each refused request, how many reset times had passed; not for those sent together with the first."""
        self.asking: list[int] = []
        """For each request that was accepted afterwards, how many were under way."""
        self._ends_s: list[float] = []

    def _reply(self, wire, body, model="", *, stream=False):
        if b"active_agent name" not in body or not wire.parse_request(body, full=True).position:
            return super()._reply(wire, body, model, stream=stream)
        now_s = time.time()
        self.closed_s = self.closed_s or now_s
        since_s = now_s - self.closed_s
        if (rest_s := next((reset_s - since_s for reset_s in self.resets_s if reset_s > since_s), 0)) > 0:
            self.refused += [sum(reset_s <= since_s for reset_s in self.resets_s)] if since_s > 1 else []
            head = [(b"retry-after-ms", b"%d" % round(rest_s * 1000))]
            return ResponsePlan(render_response(429, wire.render_error("rate", 429, "usage limit reached"), head))
        self._ends_s = [now_s + REPLY_MS / 1000, *(end_s for end_s in self._ends_s if end_s > now_s)]
        self.asking.append(len(self._ends_s))
        if len(self.asking) == 1:
            kill_asking(self.folder)
            self._ends_s.clear()
        return super()._reply(wire, body, model, stream=stream)


def kill_asking(folder):
    """Kill the process that holds the right to ask."""
    (lock,) = folder.glob("*/limits/*.0")
    (pid,) = re.findall(rf"FLOCK +ADVISORY +WRITE (\d+) \S+:{lock.stat().st_ino} ", Path("/proc/locks").read_text())
    os.kill(int(pid), signal.SIGKILL)


def spawn(*tasks, agent="lead"):
    return [
        {"name": "Agent", "arguments": {"subagent_type": agent, "prompt": task, "description": task}} for task in tasks
    ]


def nap(seconds):
    return [{"name": "bash", "arguments": {"command": f"sleep {seconds}"}}]


def test_processes_send_one_probe_and_continue_one_by_one(place):
    folder = place.root / "tmp"
    folder.mkdir()
    (place.agent_dir / "agents").mkdir()
    (place.agent_dir / "agents" / "lead.md").write_text(LEAD)
    (place.agent_dir / "agents" / "leaf.md").write_text(LEAF)
    (place.agent_dir / "subagents.json").write_text(json.dumps({"runner": "process"}))
    (place.agent_dir / "settings.json").write_text(json.dumps(SETTINGS))
    plans = {
        "^Delegate": [spawn("dig a", "dig b", "dig c", "dig d"), "Started."],
        "^dig a": [nap(4), "Dug a."],
        "^dig b": [nap(9), "Dug b."],
        "^dig c": [[*spawn("leaf c", agent="leaf"), *nap(3)], "Waiting."],
        "^dig d": [[*spawn("leaf d", agent="leaf"), *nap(3)], "Waiting."],
        "^leaf": [nap(14), "Done."],
    }
    replies = [
        {**({"text": each} if isinstance(each, str) else {"calls": each}), "match": {"first_user": words}}
        for words, steps in plans.items()
        for each in [*steps, *["Read."] * 8]
    ]
    replies = [{**reply, "delay_ms": REPLY_MS} if "text" in reply else reply for reply in replies]
    with LimitServer.in_thread({"replies": replies}, resets_s=(3, 8), folder=folder) as server:
        (place.agent_dir / "models.json").write_text(json.dumps(server.models_json(model="m")))
        args = ("-p", "--mode", "json", "--wait", "Delegate", "--model", "mock/m")
        done = place.run(*args, env={"TMPDIR": str(folder)}, timeout_s=90)
        ends = {record["description"]: record["status"] for record in done.lines if "completedAt" in record}
        assert done.status == 0, done.stderr
        assert server.refused == [1]
        assert (server.asking[:2], server.asking[2] <= 2) == ([1, 1], True)
        assert sorted(ends.values()) == ["completed"] * 3 + ["error"]
