from retinue.engine.run_config import Policy


def test_nothing_is_confined_unless_it_is_said() -> None:
    assert Policy().tell() == (False, "no sandbox is available on this machine")
    assert Policy(is_confined=True, confinement="").tell() == (True, "")


def test_main_agent_is_no_child_unless_it_is_said() -> None:
    assert Policy().base_depth == 0
