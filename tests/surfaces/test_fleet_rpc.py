import pytest
from msgspec.structs import replace

from retinue.core.errors import UsageError
from retinue.core.run import Status
from retinue.surfaces.fleet.rpc import FleetRpc
from tests.surfaces.fleet_world import EXPLORE, GENERAL, Fleet


class Desk:
    """The requests of one test and all that was answered."""

    def __init__(self, fleet):
        self.fleet = fleet
        self.said = []
        self.rpc = FleetRpc(self.open, lambda channel, reply: self.said.append((channel, reply)))

    async def open(self):
        if self.fleet is None:
            raise UsageError("No active session")
        return self.fleet.ports

    async def ask(self, method, **request):
        await self.rpc.answer(method, {"requestId": "q1", **request})
        [(channel, reply)] = self.said
        assert channel == f"subagents:rpc:{method}:reply:q1"
        self.said.clear()
        return reply

    async def refuse(self, method="spawn", **request):
        reply = await self.ask(method, **request)
        assert set(reply) == {"success", "error"}
        assert reply["success"] is False
        return reply["error"]


def spawn(**options):
    return {"type": "Explore", "prompt": "look", "options": options}


@pytest.mark.spec("fleet:B75")
async def test_ping_needs_no_session():
    desk = Desk(None)
    assert await desk.ask("ping") == {"success": True, "data": {"version": 2}}
    assert [await desk.refuse(**spawn()), await desk.refuse("stop", agentId="x")] == ["No active session"] * 2


@pytest.mark.spec("fleet:B75")
async def test_spawn_answers_with_an_id(tmp_path):
    async with Fleet(tmp_path, {"Explore": [{"text": "seen"}]}) as fleet:
        reply = await Desk(fleet).ask("spawn", **spawn(description="a look", maxTurns=3))
        run = fleet.manager.find(reply["data"]["id"])
        await fleet.settle(run)
        assert (reply["success"], run.description, run.invocation["maxTurns"]) == (True, "a look", 3)
        assert (run.text, fleet.news()) == ("seen", [])


@pytest.mark.spec("fleet:B75")
async def test_background_spawn_is_queued_and_told(tmp_path):
    async with Fleet(tmp_path, {"Explore": [{"text": "seen"}]}, max_concurrent=1) as fleet:
        desk = Desk(fleet)
        ids = [(await desk.ask("spawn", **spawn(isBackground=True)))["data"]["id"] for _ in range(2)]
        assert [fleet.manager.find(run_id).status for run_id in ids] == [Status.QUEUED] * 2
        await fleet.clock.advance(1)
        assert [run_id in text for run_id, text in zip(ids, fleet.news(), strict=True)] == [True, True]


@pytest.mark.spec("fleet:B75")
@pytest.mark.parametrize("agent_id", ["unknown", None, 3])
async def test_stop_of_unknown_says_so(tmp_path, agent_id):
    async with Fleet(tmp_path) as fleet:
        assert await Desk(fleet).refuse("stop", agentId=agent_id) == "Agent not found"


@pytest.mark.spec("fleet:B75")
async def test_stop_works_once(tmp_path):
    async with Fleet(tmp_path, {"Explore": [{"text": "late", "delay_ms": 60_000}]}) as fleet:
        desk = Desk(fleet)
        run_id = (await desk.ask("spawn", **spawn()))["data"]["id"]
        await fleet.settle()
        assert await desk.ask("stop", agentId=run_id) == {"success": True}
        await fleet.settle(fleet.manager.find(run_id))
        assert await desk.refuse("stop", agentId=run_id) == "Agent not found"


@pytest.mark.parametrize("request_id", [None, 3, "", "x" * 129])
async def test_request_without_id_is_dropped(request_id):
    desk = Desk(None)
    await desk.rpc.answer("ping", {"requestId": request_id})
    for request in (None, "ping", [1]):
        await desk.rpc.answer("ping", request)
    assert desk.said == []


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        ({"type": "Explore"}, "Missing required argument: prompt."),
        ({"type": 3, "prompt": "look"}, "Missing required argument: type."),
        (
            {"type": "nobody", "prompt": "look"},
            'Unknown agent type "nobody". Available types: general-purpose, Explore.',
        ),
        (spawn(maxTurns="many"), "max_turns is 'many': expected a whole number from 0, or nothing for no limit"),
        ({**spawn(), "options": []}, "SpawnOptions: Expected `object`, got `array`"),
        (spawn(parentAgentId="ghost"), 'Parent agent "ghost" is not running'),
    ],
)
async def test_bad_request_starts_nothing(tmp_path, request_, error):
    async with Fleet(tmp_path) as fleet:
        assert await Desk(fleet).refuse(**request_) == error
        assert fleet.manager.list_runs() == []


async def test_disabled_agent_is_refused(tmp_path):
    async with Fleet(tmp_path, definitions=[GENERAL, replace(EXPLORE, enabled=False)]) as fleet:
        told = 'Agent type "Explore" is disabled. Available types: general-purpose.'
        assert await Desk(fleet).refuse(**spawn()) == told


@pytest.mark.spec("fleet:B76")
async def test_folder_must_be_one(tmp_path):
    (tmp_path / "file").write_text("")
    async with Fleet(tmp_path) as fleet:
        desk = Desk(fleet)
        told = [await desk.refuse(**spawn(cwd=cwd)) for cwd in ("sub", f"{tmp_path}/gone", f"{tmp_path}/file")]
        assert told == [
            'SpawnOptions.cwd must be an absolute path: "sub"',
            f'SpawnOptions.cwd does not exist: "{tmp_path}/gone"',
            f'SpawnOptions.cwd is not a directory: "{tmp_path}/file"',
        ]
        assert fleet.manager.list_runs() == []


@pytest.mark.spec("fleet:B76")
@pytest.mark.parametrize("name", [None, "sub"])
async def test_folder_is_passed_on(tmp_path, name):
    (tmp_path / "sub").mkdir()
    cwd = None if name is None else str(tmp_path / name)
    async with Fleet(tmp_path, {"Explore": [{"text": "seen"}]}) as fleet:
        await Desk(fleet).ask("spawn", **spawn(cwd=cwd))
        await fleet.settle()
        assert [request.cwd for request in fleet.requests] == [cwd]


@pytest.mark.spec("fleet:B77")
@pytest.mark.parametrize("model", ["haiku", {"provider": "anthropic", "id": "claude-haiku-4-5-20251001"}])
async def test_model_is_resolved(tmp_path, model):
    async with Fleet(tmp_path, {"Explore": [{"text": "seen"}]}) as fleet:
        await Desk(fleet).ask("spawn", **spawn(model=model))
        await fleet.settle()
        assert [request.model for request in fleet.requests] == ["anthropic/claude-haiku-4-5-20251001"]


@pytest.mark.spec("fleet:B77")
async def test_unknown_model_lists_those_there_are(tmp_path):
    async with Fleet(tmp_path) as fleet:
        error = await Desk(fleet).refuse(**spawn(model="gpt-99"))
    assert error.splitlines()[0] == 'Model not found: "gpt-99".'
    assert "  anthropic/claude-sonnet-4-5" in error.splitlines()
