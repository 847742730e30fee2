import pytest

pytestmark = pytest.mark.fresh

GREETER = """
def register(api):
    @api.command("greet")
    def greet(text):
        return f"Hello {text}"
"""


@pytest.fixture
def greeter(place):
    folder = place.agent_dir / "extensions"
    folder.mkdir(parents=True)
    (folder / "greeter.py").write_text(GREETER)


def test_command_answers_in_place_of_the_agent(place, greeter):
    done = place.run("-p", "/greet the world", replies=[])
    assert (done.status, done.stdout, done.stderr) == (0, "Hello the world\n", "")


def test_unknown_slash_is_a_prompt(place, greeter):
    done = place.run("-p", "/etc/hosts has what?", replies=[{"text": "Hosts."}])
    assert (done.status, done.stdout) == (0, "Hosts.\n")


def test_stream_stays_clean_of_commands(place, greeter):
    done = place.run("--mode", "json", "-p", "/greet you", replies=[])
    assert (done.status, "Hello" in done.stdout, "Hello you" in done.stderr) == (0, False, True)
