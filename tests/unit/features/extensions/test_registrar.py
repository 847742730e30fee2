from pathlib import Path

import pytest

from retinue.core.errors import ToolFailed, UsageError
from retinue.core.events import RunFinished, RunStarted
from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.features.extensions.registrar import EVENTS, Api, Registrations, close_api
from retinue.models.catalog import Provider

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
CONTEXT = ToolContext(Path("/"))


def make_api(**options):
    return Api("ops", Path("/work"), **options)


class Plain:
    spec = ToolSpec("deploy", "Deploys.", {})

    async def call(self, arguments, context):
        return ToolResult.of("done")


async def call(api, arguments, context=CONTEXT):
    [tool] = close_api(api)[0].tools
    return await tool.call(arguments, context)


async def test_object_becomes_a_tool():
    api = make_api()
    api.tool(Plain())
    [tool] = close_api(api)[0].tools
    assert (tool.extension, tool.effect, tool.hint, tool.guidelines) == ("ops", Effect.EXECUTE, "", ())
    assert tool.spec == ToolSpec("deploy", "Deploys.", {"type": "object"})
    assert await tool.call({}, CONTEXT) == ToolResult.of("done")


async def test_function_becomes_a_tool():
    api = make_api()

    @api.tool(name="shout", description="Shouts.", parameters=TEXT, effect="read", hint="loud", guidelines=["Rarely."])
    def shout(text, context):
        return f"{text.upper()} in {context.cwd}"

    assert shout("a", CONTEXT) == "A in /"
    [tool] = close_api(api)[0].tools
    assert (tool.effect, tool.hint, tool.guidelines) == (Effect.READ, "loud", ("Rarely.",))
    assert await tool.call({"text": "hey"}, CONTEXT) == ToolResult.of("HEY in /")


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        ("text", ToolResult.of("text")),
        (None, ToolResult.of("(no output)")),
        ({"n": [1]}, ToolResult.of('{"n":[1]}', {"n": [1]})),
        (ToolResult.of("x", is_error=True), ToolResult.of("x", is_error=True)),
    ],
)
async def test_any_return_is_a_result(returned, result):
    api = make_api()

    @api.tool(name="give", description="Gives.")
    async def give():
        return returned

    assert await call(api, {}) == result


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt, StopIteration, TimeoutError])
async def test_raising_tool_gives_error_result(kind):
    api = make_api(path=__file__)

    @api.tool(name="fall", description="Falls.")
    def fall():
        raise kind("down")

    result = await call(api, {})
    text = result.content[0].text
    assert result.is_error and text.startswith(f"fall failed: {kind.__name__}: down (extension 'ops', {__file__}:")


async def test_expected_failure_keeps_its_words():
    api = make_api()

    @api.tool(name="fall", description="Falls.")
    def fall():
        raise ToolFailed("no such place")

    assert await call(api, {}) == ToolResult.of("no such place", {}, is_error=True)


@pytest.mark.parametrize("name", ["read", "READ", "mcp__git__log"])
def test_taken_tool_name_is_refused(name):
    api = make_api(path=__file__, reserved=("read",))
    api.tool(name=name, description="Mine.")(lambda: "")
    registrations, [problem] = close_api(api)
    assert registrations == Registrations()
    assert problem.code == "extension-tool" and problem.line is not None
    assert problem.message.endswith(f"extension 'ops': there is already a tool '{name}'; not registered")


def test_own_tool_name_counts_once():
    api = make_api()
    for name in ("deploy", "Deploy"):
        api.tool(name=name, description="Mine.")(lambda: "")
    registrations, problems = close_api(api)
    assert ([tool.spec.name for tool in registrations.tools], len(problems)) == (["deploy"], 1)


def test_schema_cannot_change_afterwards():
    api, schema = make_api(), {"properties": {"a": {"type": "string"}}}
    api.tool(name="x", description="X.", parameters=schema)(lambda a="": a)
    schema["properties"]["a"]["type"] = "object"
    [tool] = close_api(api)[0].tools
    assert tool.spec.parameters == {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.parametrize(
    ("options", "function", "problem"),
    [
        ({"name": "a b", "description": "x"}, None, "api.tool: name 'a b': expected a letter"),
        ({"name": "a"}, None, "api.tool: a has no description"),
        ({"name": "a", "description": "x" * 20_000}, None, "more than 16000 characters"),
        ({"name": "a", "description": "x", "effect": "all"}, None, "effect 'all' of a: expected read, write"),
        ({"name": "a", "description": "x", "parameters": {"type": "array"}}, None, "of type object"),
        ({"name": "a", "description": "x", "parameters": {"x": object()}}, None, "are not a JSON schema"),
        ({"name": "a", "description": "x"}, lambda text: "", "a: text: a parameter without default must be required"),
        ({"name": "a", "description": "x", "parameters": TEXT}, lambda: "", "the function takes no text"),
        ({"name": "a", "description": "x"}, lambda a, /: "", "arguments are passed by name"),
        ({"name": "a", "description": "x"}, 5, "expected a function, not 'int'"),
    ],
)
def test_unusable_tool_is_told(options, function, problem):
    with pytest.raises(UsageError) as caught:
        make_api().tool(**options)(function)
    assert problem in str(caught.value)


class Desk:
    name = "desk"

    def build_tools(self, seat):
        return []


class Echo:
    info = ModelInfo("house", "echo", "echo")

    async def reply(self, request, draft):
        raise ValueError("no answer")


def test_verbs_collect_in_order():
    api, provider, surface = make_api(), Provider("house", "House", "x", "y"), Desk()
    api.model(Echo())
    api.model(provider)
    api.surface(surface)
    api.renderer("note", str)
    api.command("count", len, "Counts.")
    made, problems = close_api(api)
    assert (made.models[0].info, made.providers, made.surfaces[0].inner, problems) == (
        Echo.info,
        (provider,),
        surface,
        (),
    )
    assert [(command.name, command.help) for command in made.commands] == [("count", "Counts.")]
    assert [renderer.kind for renderer in made.renderers] == ["note"]


def test_events_go_by_class_or_name():
    api = make_api()
    api.on("RunFinished", print)
    api.on("*", print)

    @api.on(RunStarted)
    async def tell(event): ...

    found = [(handler.events, handler.is_async) for handler in close_api(api)[0].handlers]
    assert found == [({RunFinished}, False), (set(EVENTS.values()), False), ({RunStarted}, True)]


@pytest.mark.parametrize(
    ("verb", "arguments", "problem"),
    [
        ("on", ("RunFinishd", print), "there is no event 'RunFinishd' (did you mean 'RunFinished'?)"),
        ("on", (int, print), "there is no event"),
        ("on", ("RunFinished", 5), "api.on: expected a function, not 'int'"),
        ("hook", (object(),), "api.hook: expected async methods before or after, not 'object'"),
        ("model", (5,), "api.model: expected a Model or a Provider, not 'int'"),
        ("command", ("/Run", print), "api.command: '/Run': expected a-z"),
        ("feature", (None,), "api.feature: expected a function"),
        ("surface", (None,), "api.surface: expected a name and a method build_tools(seat)"),
        ("renderer", ("", print), "api.renderer: expected the name of a kind"),
        ("tool", (object(),), "api.tool: expected an object with a spec and an async call"),
    ],
)
def test_wrong_registration_is_told(verb, arguments, problem):
    with pytest.raises(UsageError) as caught:
        getattr(make_api(), verb)(*arguments)
    assert problem in str(caught.value)


@pytest.mark.parametrize("verb", ["tool", "model", "command", "hook", "feature", "surface", "renderer", "on"])
def test_late_verb_is_an_error(verb):
    api = make_api()
    close_api(api)
    with pytest.raises(UsageError) as caught:
        getattr(api, verb)(*(() if verb == "tool" else ("x", "y") if verb == "renderer" else ("x",)))
    assert f"api.{verb} of extension 'ops' was called after register had returned" in str(caught.value)


async def test_command_shows_what_it_returns():
    api = make_api()
    api.command("shout", str.upper)

    @api.command("fall")
    async def fall(text):
        raise SystemExit(text)

    shout, failing = close_api(api)[0].commands
    assert await shout.run("hey") == "HEY"
    with pytest.raises(Exception) as caught:
        await failing.run("now")
    assert "/fall failed: SystemExit: now (extension 'ops'" in str(caught.value)


def test_failing_renderer_renders_nothing(caplog):
    api = make_api()
    api.renderer("note", lambda data: data["text"])
    [renderer] = close_api(api)[0].renderers
    assert (renderer.render({"text": "hey"}), renderer.render({})) == ("hey", None)
    [told] = caplog.messages
    assert told.startswith(f"the renderer of note failed: KeyError: 'text' (extension 'ops', {__file__}:")
