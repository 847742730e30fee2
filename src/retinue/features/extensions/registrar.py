"""The API that `register(api)` receives: methods that collect registrations, and the shared event channels.

Checks the form of registrations but does not use them. The methods work only during `register`; `events` works for the
life of the program.
"""

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import Struct

from retinue.core.diagnostics import Diagnostic, suggest
from retinue.core.errors import RetinueError, UsageError, quote
from retinue.core.events import Event
from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.pattern import late_pattern
from retinue.core.tool import Effect, Tool
from retinue.engine.calls import CallHook
from retinue.engine.setup import Feature
from retinue.features.extensions.channels import Channels, ExtensionEvents
from retinue.features.extensions.contained import (
    ExtensionCommand,
    ExtensionFeature,
    ExtensionHook,
    ExtensionModel,
    ExtensionPoint,
    ExtensionSurface,
    ExtensionTool,
    Function,
    Handler,
    Renderer,
    get_log,
    make_handler,
    to_tool_call,
)
from retinue.features.hooks.points import POINTS, SILENT
from retinue.models.catalog import Provider

F = TypeVar("F", bound=Callable[..., Any])
EVENTS: Mapping[str, type] = {kind.__name__: kind for kind in get_args(Event)}
MAX_DESCRIPTION_CHARS = 16_000
_TOOL_NAME = late_pattern(r"[a-zA-Z][a-zA-Z0-9_-]{0,63}")
_COMMAND_NAME = late_pattern(r"[a-z][a-z0-9_-]{0,63}")
_FOREIGN_PREFIX = "mcp__"


class Registrations(Struct, frozen=True):
    tools: tuple[ExtensionTool, ...] = ()
    models: tuple[ExtensionModel, ...] = ()
    providers: tuple[Provider, ...] = ()
    commands: tuple[ExtensionCommand, ...] = ()
    hooks: tuple[CallHook, ...] = ()
    points: tuple[ExtensionPoint, ...] = ()
    features: tuple[Callable[[], Feature], ...] = ()
    surfaces: tuple[ExtensionSurface, ...] = ()
    renderers: tuple[Renderer, ...] = ()
    handlers: tuple[Handler, ...] = ()


class Api:
    """The object that `register(api)` receives."""

    def __init__(
        self,
        name: str,
        cwd: Path,
        *,
        path: str = "",
        reserved: Collection[str] = (),
        channels: Channels | None = None,
    ) -> None:
        """`reserved` are tool names that are taken, ignoring case."""
        self.name = name
        self.cwd = cwd
        self.events = ExtensionEvents(name, path, channels)
        self.log = get_log(name)
        self._path = path
        self._taken = {taken.lower() for taken in reserved}
        self._is_open = True
        self._kept: dict[str, list[Any]] = {field: [] for field in Registrations.__struct_fields__}
        self._diagnostics: list[Diagnostic] = []

    def tool(
        self,
        tool: Tool | None = None,
        *,
        name: str = "",
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        effect: Effect | str | None = None,
        hint: str = "",
        guidelines: Sequence[str] = (),
        deferred: bool = False,
    ) -> Any:
        """Add a tool; without `tool`, return a decorator that makes a tool of a function. The default effect is
        execute.

        A `deferred` tool is hidden from the model until found with `tool_search`.
        """
        self._check_open("tool")
        if tool is not None:
            self._add_tool(tool, deferred=deferred)
            return tool
        spec = self._to_spec(ToolSpec(name, description, dict(parameters or {})))
        granted = _to_effect(effect, name)

        def register(function: F) -> F:
            self._check_open("tool")
            _check_parameters(function, spec)
            self._keep_tool(spec, granted, hint, guidelines, to_tool_call(function), deferred=deferred)
            return function

        return register

    def model(self, model: Any) -> None:
        """Add a model, or a provider with all its models."""
        self._check_open("model")
        if isinstance(model, Provider):
            self._kept["providers"].append(model)
        elif isinstance(getattr(model, "info", None), ModelInfo) and callable(getattr(model, "reply", None)):
            self._kept["models"].append(ExtensionModel(self.name, self._path, model, model.info))
        else:
            raise UsageError(f"api.model: expected a Model or a Provider, not {_name_type(model)}")

    def command(self, name: str, handler: Function | None = None, help: str = "") -> Any:
        """Add a command; the handler gets the text after its name and returns the text to show, or None."""
        self._check_open("command")
        if not _COMMAND_NAME.fullmatch(name):
            raise UsageError(f"api.command: {quote(name)}: expected a-z, then a-z, 0-9, hyphens and underscores")
        if handler is None:
            return lambda function: self.command(name, function, help) or function
        _check_callable("command", handler)
        self._kept["commands"].append(ExtensionCommand(self.name, self._path, name, handler, help))
        return None

    def hook(self, hook: Any = None, *, point: str = "", priority: int = 0) -> Any:
        """Call an object around every tool call: `before`, `after` or both.

        With `point`, call a function at that hook point instead; without `hook`, return a decorator. The function gets
        the payload and returns a decision object or None.
        """
        self._check_open("hook")
        if point:
            if point not in POINTS or point in SILENT:
                raise UsageError(f"api.hook: there is no point {quote(point)}{suggest(point, POINTS)}")
            if hook is None:
                return lambda function: self.hook(function, point=point, priority=priority) or function
            _check_callable("hook", hook)
            self._kept["points"].append(ExtensionPoint(self.name, self._path, point, hook, int(priority)))
            return None
        methods = [method for name in ("before", "after") if (method := getattr(hook, name, None)) is not None]
        if not methods or not all(inspect.iscoroutinefunction(method) for method in methods):
            raise UsageError(f"api.hook: expected async methods before or after, not {_name_type(hook)}")
        self._kept["hooks"].append(ExtensionHook(self.name, self._path, hook))
        return None

    def feature(self, factory: Callable[[], Feature]) -> None:
        """Add a feature to every run that gets this extension; the factory creates one per run."""
        self._check_open("feature")
        _check_callable("feature", factory)
        name, path = self.name, self._path
        self._kept["features"].append(lambda: ExtensionFeature(name, path, factory))

    def surface(self, surface: Any) -> None:
        """Add a surface for the main agent: an object with a `name` and `build_tools(seat)`."""
        self._check_open("surface")
        if not isinstance(getattr(surface, "name", None), str) or not callable(getattr(surface, "build_tools", None)):
            raise UsageError(f"api.surface: expected a name and a method build_tools(seat), not {_name_type(surface)}")
        self._kept["surfaces"].append(ExtensionSurface(self.name, self._path, surface))

    def renderer(self, kind: str, function: Function) -> None:
        """Add a function that renders one kind of data as text."""
        self._check_open("renderer")
        _check_callable("renderer", function)
        if not isinstance(kind, str) or not kind:
            raise UsageError(f"api.renderer: expected the name of a kind, not {quote(kind)}")
        self._kept["renderers"].append(Renderer(self.name, self._path, kind, function))

    def on(self, event: str | type, handler: Function | None = None) -> Any:
        """Call the handler after an event (its class, its name, or `*` for all); async handlers run in the background.

        A name with a colon, such as `subagents:completed`, is a channel.
        """
        self._check_open("on")
        is_channel = isinstance(event, str) and ":" in event
        kinds = frozenset[type]() if is_channel else _to_kinds(event)
        if handler is None:
            return lambda function: self.on(event, function) or function
        _check_callable("on", handler)
        if is_channel:
            self.events.on(str(event), handler)
            return None
        self._kept["handlers"].append(make_handler(self.name, self._path, kinds, handler))
        return None

    def _add_tool(self, tool: Any, *, deferred: bool) -> None:
        spec = getattr(tool, "spec", None)
        call = getattr(tool, "call", None)
        if not isinstance(spec, ToolSpec) or not inspect.iscoroutinefunction(call):
            raise UsageError(
                f"api.tool: expected an object with a spec and an async call, or keywords, not {_name_type(tool)}"
            )
        effect = _to_effect(getattr(tool, "effect", None), spec.name)
        hint, guidelines = getattr(tool, "hint", ""), getattr(tool, "guidelines", ())
        is_deferred = deferred or getattr(tool, "deferred", False) is True
        self._keep_tool(self._to_spec(spec), effect, hint, guidelines, call, deferred=is_deferred)

    def _keep_tool(
        self, spec: ToolSpec, effect: Effect, hint: str, guidelines: Sequence[str], run: Function, *, deferred: bool
    ) -> None:
        if spec.name.lower() in self._taken or spec.name.lower().startswith(_FOREIGN_PREFIX):
            line = self._find_line()
            where = f"{self._path}:{line}" if line is not None else self._path or self.name
            text = f"{where}: extension {quote(self.name)}: there is already a tool {quote(spec.name)}; not registered"
            self._diagnostics.append(Diagnostic(text, self._path, line, code="extension-tool"))
            return
        self._taken.add(spec.name.lower())
        sentences = tuple(map(str, guidelines))
        tool = ExtensionTool(self.name, self._path, spec, effect, str(hint), sentences, run, bool(deferred))
        self._kept["tools"].append(tool)

    def _to_spec(self, spec: ToolSpec) -> ToolSpec:
        """Return a validated copy that the extension cannot change later."""
        if not isinstance(spec.name, str) or not _TOOL_NAME.fullmatch(spec.name):
            raise UsageError(f"api.tool: name {quote(spec.name)}: expected a letter, then letters, digits, _ and -")
        if not isinstance(spec.description, str) or not spec.description.strip():
            raise UsageError(f"api.tool: {spec.name} has no description; the model chooses tools by it")
        if len(spec.description) > MAX_DESCRIPTION_CHARS:
            raise UsageError(
                f"api.tool: the description of {spec.name} has more than {MAX_DESCRIPTION_CHARS} characters"
            )
        try:
            schema = msgspec.json.decode(msgspec.json.encode({"type": "object", **spec.parameters}))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"api.tool: the parameters of {spec.name} are not a JSON schema: {error}") from error
        if schema["type"] != "object" or not isinstance(schema.get("properties", {}), dict):
            raise UsageError(f"api.tool: the parameters of {spec.name} must be a schema of type object with properties")
        return ToolSpec(spec.name, spec.description, schema)

    def _find_line(self) -> int | None:
        frame: Any = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self._path:
            frame = frame.f_back
        return None if frame is None else frame.f_lineno

    def _check_open(self, verb: str) -> None:
        if not self._is_open:
            raise UsageError(
                f"api.{verb} of extension {quote(self.name)} was called after register had returned; "
                "everything is registered inside it"
            )


def close_api(api: Api) -> tuple[Registrations, tuple[Diagnostic, ...]]:
    """End registration and return what was registered."""
    api._is_open = False
    kept = {field: tuple(values) for field, values in api._kept.items()}
    return Registrations(**kept), tuple(api._diagnostics)


def open_surfaces(
    surfaces: Iterable[ExtensionSurface], seat: Any, cwd: Path, *, reserved: Collection[str] = ()
) -> tuple[dict[str, ExtensionTool], tuple[Diagnostic, ...]]:
    """Build the tools of surfaces for one caller, with the checks for all extension tools."""
    tools: dict[str, ExtensionTool] = {}
    problems: list[Diagnostic] = []
    for surface in surfaces:
        api = Api(surface.extension, cwd, path=surface.path, reserved=(*reserved, *tools))
        try:
            for tool in surface.build_tools(seat):
                api.tool(tool)
        except RetinueError as error:
            problems.append(Diagnostic(str(error), surface.path, code="extension-surface"))
            continue
        registrations, clashes = close_api(api)
        tools.update({tool.spec.name: tool for tool in registrations.tools})
        problems += clashes
    return tools, tuple(problems)


def _to_effect(value: object, name: str) -> Effect:
    if value is None:
        return Effect.EXECUTE  # without a declared effect a tool may do anything
    try:
        return Effect(value)  # type: ignore[arg-type]
    except ValueError:
        raise UsageError(f"api.tool: effect {quote(value)} of {name}: expected {', '.join(Effect)}") from None


def _to_kinds(event: object) -> frozenset[type]:
    if event == "*":
        return frozenset(EVENTS.values())
    kind = EVENTS.get(event) if isinstance(event, str) else event
    if not isinstance(kind, type) or kind not in EVENTS.values():
        shown = event if isinstance(event, str) else _name_type(event)
        raise UsageError(f"api.on: there is no event {quote(shown)}{suggest(str(shown), EVENTS)}")
    return frozenset((kind,))


def _check_parameters(function: Function, spec: ToolSpec) -> None:
    """Check that schema and function match at registration, not when a model calls the tool."""
    _check_callable("tool", function)
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.POSITIONAL_ONLY for parameter in parameters):
        raise UsageError(f"api.tool: {spec.name}: arguments are passed by name; the function must not forbid that")
    properties = set(spec.parameters.get("properties", {}))
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    single = [each for each in parameters if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]
    always = {*spec.parameters.get("required", ()), "context"}
    missing = [each.name for each in single if each.default is each.empty and each.name not in always]
    extra = sorted(properties - {each.name for each in single}) if not takes_all else []
    if missing:
        raise UsageError(f"api.tool: {spec.name}: {', '.join(missing)}: a parameter without default must be required")
    if extra or "context" in properties:
        raise UsageError(f"api.tool: {spec.name}: the function takes no {', '.join(extra) or 'argument context'}")


def _check_callable(verb: str, value: object) -> None:
    if not callable(value):
        raise UsageError(f"api.{verb}: expected a function, not {_name_type(value)}")


def _name_type(value: object) -> str:
    return quote(value.__name__ if isinstance(value, type) else type(value).__name__)
