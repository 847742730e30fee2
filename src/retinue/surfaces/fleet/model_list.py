"""The tool `list_models`: lists the models that agents can use."""

from functools import cached_property
from typing import Any

from retinue.core.figures import format_window
from retinue.core.model import ModelInfo, ToolSpec
from retinue.core.tool import Effect, ToolContext, ToolResult
from retinue.surfaces.fleet.ports import FleetTool
from retinue.tools.registry import load_description


class ModelsTool(FleetTool):
    effect = Effect.READ
    hint = "List the models that agents can use"

    @cached_property
    def spec(self) -> ToolSpec:
        properties = {"provider": {"type": "string", "description": "Only models of this provider"}}
        return ToolSpec("list_models", load_description(__file__), {"type": "object", "properties": properties})

    async def call(self, arguments: dict[str, Any], context: ToolContext) -> ToolResult:
        models, active = list(self._caller.list_models()), self._caller.model.ref
        provider = str(arguments.get("provider") or "").strip()
        shown = [model for model in models if not provider or model.provider.lower() == provider.lower()]
        if not shown:
            names = ", ".join(sorted({model.provider for model in models})) or "(none)"
            wanted = f' for provider "{provider}"' if provider else ""
            return ToolResult.of(f"No models available{wanted}. Available providers: {names}.", {"count": 0})
        has_active = any(model.ref == active for model in shown)
        head = f"{len(shown)} models available" + (f' for provider "{provider}"' if provider else "")
        head += " — * = active:" if has_active else ":"
        lines = [_render(model, is_active=model.ref == active) for model in sorted(shown, key=lambda each: each.ref)]
        return ToolResult.of("\n".join((head, *lines)), {"count": len(shown)})


def _render(model: ModelInfo, *, is_active: bool) -> str:
    name = f" ({model.name})" if model.name and model.name != model.id else ""
    window = f" · ctx {format_window(model.context_window)}" if model.context_window else ""
    return f"{'*' if is_active else ' '} {model.ref}{name}{window}{' · reasoning' if model.reasoning else ''}"
