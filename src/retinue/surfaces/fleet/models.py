"""What a caller may say about models: the scope it must stay in, and the texts when it does not. Pure."""

from collections.abc import Iterable, Sequence

from retinue.core.model import ModelInfo

MAX_LISTED = 100


def pick_scope(entries: Iterable[str], models: Sequence[ModelInfo]) -> list[str]:
    """The entries that name an available model exactly; patterns, parts of names and blanks are none."""
    refs = {model.ref.lower(): model.ref for model in models}
    found = (refs.get(entry.strip().lower()) for entry in entries)
    return list(dict.fromkeys(ref for ref in found if ref is not None))


def is_in_scope(ref: str, scope: Sequence[str]) -> bool:
    """Whether a model may be chosen; without a scope every one may."""
    return not scope or ref.lower() in {allowed.lower() for allowed in scope}


def tell_unknown(name: str, models: Sequence[ModelInfo]) -> str:
    """There is no such model, and which there are."""
    return "\n".join((f'Model not found: "{name}".', "", "Available models:", *_list(model.ref for model in models)))


def tell_out_of_scope(name: str, scope: Sequence[str]) -> str:
    """The model exists but may not be chosen, and which may."""
    listed = _list(scope)
    return "\n".join((f'Model not in scope: "{name}".', "", "Allowed models (from enabledModels):", *listed))


def shorten_name(info: ModelInfo) -> str:
    """A model's name as a badge: `sonnet 4.5`."""
    name = info.name or info.id
    return (name[len("Claude ") :] if name.startswith("Claude ") else name).lower()


def _list(refs: Iterable[str]) -> list[str]:
    names = sorted(refs)
    lines = [f"  {name}" for name in names[:MAX_LISTED]] or ["  (none)"]
    if len(names) > MAX_LISTED:
        lines.append(f"  … and {len(names) - MAX_LISTED} more (list_models shows all)")
    return lines
