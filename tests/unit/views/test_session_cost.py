from retinue.core.messages import AssistantMessage, Cost, TextContent, Usage, UserMessage
from retinue.core.run import Run
from retinue.sessions.log import Session
from retinue.testing import FakeClock
from retinue.views.session_cost import AgentCost, list_costs, measure_savings

ONE = Usage(100, 20, 5, 3, 128, Cost(total=0.5))


def reply(model):
    return AssistantMessage([TextContent("yes")], "x", "mock", model, ONE, "stop", 1)


def test_costs_are_listed_by_agent_and_model(tmp_path):
    path = tmp_path / "s.jsonl"
    session = Session.create(cwd="/", directory=None, path=path, clock=FakeClock(), new_id=lambda: "one")
    asked = session.append_message(UserMessage("hi", 1))
    session.append_message(reply("a"))
    session.append_message(reply("b"))
    session.append_compaction("summary", asked, 9, ONE, None)
    session.branch(asked)
    session.append_message(reply("a"))
    run = Run(id="r", parent_id="m", depth=1, agent="Explore", description="look", usage=ONE)
    costs = list_costs(session, [run], lambda run_id: f"mock/{run_id}")
    session.close()
    assert costs == [
        AgentCost("main", "", "mock/a", ONE + ONE),
        AgentCost("main", "", "mock/b", ONE + ONE),
        AgentCost("Explore", "look", "mock/r", ONE),
    ]


def test_savings_use_the_price_of_uncached_input():
    plain = Usage(1_000_000, 0, 0, 0, 1_000_000, Cost(3, 0, 0, 0, 3))
    forked = Usage(0, 0, 1_000_000, 100_000, 1_100_000, Cost(0, 0, 0.3, 0.375, 0.675))
    written = Usage(0, 0, 0, 1_000_000, 1_000_000, Cost(0, 0, 0, 3.75, 3.75))
    rows = [("a", plain), ("a", forked), ("a", written), ("free", Usage(10, 1, 99))]
    assert [round(saved, 3) for saved in measure_savings(rows, [])] == [0, 2.625, -0.75, 0]
