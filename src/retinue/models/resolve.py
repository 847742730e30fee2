"""Find a model by a typed name: exact, then fuzzy, with an optional thinking level after a colon.

Pure: returns a choice or raises a ModelError that says what to do.
"""

import fnmatch
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct, structs

from retinue.core.diagnostics import suggest
from retinue.core.errors import ModelError, quote
from retinue.core.messages import THINKING_LEVELS, ThinkingLevel
from retinue.core.model import ModelInfo
from retinue.core.pattern import late_pattern
from retinue.models.catalog import OFFLINE_MODEL, SERVERS, Provider, find_relative

LOWEST_SCORE = 20.0
_NAME_SCORE = 40.0
"""The lowest score of a match with part of an id or name, as opposed to mere shared words."""
MOST_SHOWN = 12
_DATE = late_pattern(r"\d{8}")
_SPLIT = late_pattern(r"[\s\-/]+")
_WORDS = late_pattern(r"[a-z]+|\d+")


class ModelChoice(Struct, frozen=True):
    info: ModelInfo
    thinking: ThinkingLevel | None = None
    """The thinking level in the name."""
    reason: str = ""
    """Why this model was chosen if the user did not name it, or what is doubtful about it; for one line on stderr."""
    is_chosen: bool = False
    """The user named its provider, which may then differ from the main model's."""


class UnknownModel(ModelError):
    """No model has the name. The reason is looked for when it is read: that takes time, and a wish needs none."""

    def __init__(self, explain: Callable[[], str]) -> None:
        super().__init__()
        self._explain = cache(explain)

    def __str__(self) -> str:
        return self._explain()


def explain_plainly(provider: Provider) -> str:
    """What to do about a provider without a key, if nothing more is known."""
    return f"no key for provider {provider.id}" + (f": set {provider.env[-1]}" if provider.env else "")


class Names(Struct, frozen=True):
    """The models and providers that a name is matched against."""

    candidates: Sequence[ModelInfo]
    """Usable models; their order breaks ties."""
    known: Mapping[str, Provider]
    """All providers by id, including those without a key."""
    explain: Callable[[Provider], str] = explain_plainly

    def find_provider(self, name: str) -> str | None:
        """The id of a provider, ignoring case."""
        ids = dict.fromkeys([*self.known, *(model.provider for model in self.candidates)])
        return next((id for id in ids if id.lower() == name.strip().lower()), None)

    def of_provider(self, id: str) -> list[ModelInfo]:
        """The usable models of one provider."""
        return [model for model in self.candidates if model.provider == id]


def resolve_model(
    query: str, names: Names, *, provider: str | None = None, anywhere: bool = False, accept: bool = False
) -> ModelChoice:
    """The model that a query means. Raises ModelError.

    `anywhere` allows another provider for `provider/id` if the named one has no such model or no key: wanted for agent
    files, but a surprise on the command line. `accept` allows an id that is not in the catalogue, if its provider is
    named.
    """
    text = query.strip()
    if not text:
        raise ModelError("the model name is empty; expected provider/id or a part of a model's name")
    if provider is not None:
        provider = _check_provider(provider, names)
    if (file := _find_script(text, provider)) is not None:
        base, thinking = split_thinking(file) or (file, None)
        return ModelChoice(ModelInfo(provider="scripted", id=base, api="scripted", name=base), thinking)
    if provider is None and text.lower().startswith("bridge/"):
        return ModelChoice(_to_bridged(text[len("bridge/") :]))
    level: ThinkingLevel | None = None
    if (info := _match(text, names, provider, anywhere=anywhere, accept=accept)) is not None:
        return ModelChoice(info)
    if (split := split_thinking(text)) is not None:
        text, level = split
        if (info := _match(text, names, provider, anywhere=anywhere, accept=accept)) is not None:
            return ModelChoice(info, level)
    if accept and (guess := _accept(text, names, provider)) is not None:
        return structs.replace(guess, thinking=level)
    raise UnknownModel(lambda: _explain_failure(text, names, provider, anywhere=anywhere))


def split_thinking(text: str) -> tuple[str, ThinkingLevel] | None:
    """Split `name:level`, if the part after the last colon is a thinking level; else None."""
    base, colon, level = text.rpartition(":")
    if not colon or not base.strip() or level not in THINKING_LEVELS:
        return None
    return base.strip(), level


def score_model(query: str, model: ModelInfo) -> float:
    """How well a model matches a query; a score below LOWEST_SCORE is no match."""
    wanted, id, name, provider = (_fold(part) for part in (query, model.id, model.name, model.provider))
    ref = f"{provider}/{id}"
    if wanted in (id, ref):
        return 100.0
    if wanted in id or wanted in ref:
        return 60.0 + 30.0 * min(1.0, len(wanted) / len(id))
    if wanted in name:
        return 40.0 + 20.0 * len(wanted) / len(name)
    tokens = [token for token in _SPLIT.split(wanted) if token and not _DATE.fullmatch(token)]
    texts = (id, name, provider)
    if tokens and all(_occurs(token, texts) for token in tokens):
        return LOWEST_SCORE
    return 0.0


def _fold(text: str) -> str:
    return text.lower().replace(".", "-")


def _occurs(token: str, texts: tuple[str, ...]) -> bool:
    if not token.isdigit():
        return any(token in text for text in texts)
    # "5" must be a separate version: inside a date or another number it means nothing.
    return any(token in _WORDS.findall(text) for text in texts)


def _check_provider(name: str, names: Names) -> str:
    if name.strip().lower() == "scripted":
        return "scripted"
    id = names.find_provider(name)
    if id is None:
        if silent := _explain_silence(name):
            raise ModelError(silent)
        known = [*names.known, "scripted"]
        raise ModelError(f"unknown provider {quote(name)}{suggest(name, known)}; known: {', '.join(known)}")
    if not names.of_provider(id):
        raise ModelError(names.explain(names.known[id]))
    return id


def _to_bridged(name: str) -> ModelInfo:
    """A model used through pydantic-ai: `bridge/provider:id`."""
    provider, colon, id = name.partition(":")
    if not (provider.strip() and colon and id.strip()):
        raise ModelError(f"model {quote('bridge/' + name)} has no provider and id; expected bridge/PROVIDER:ID")
    return ModelInfo(provider=provider.strip(), id=id.strip(), api="bridge", name=f"{id.strip()} (pydantic-ai)")


def _explain_silence(provider: str) -> str:
    """Why a server on this machine is missing; empty for any other provider."""
    for server in SERVERS:
        if server.provider == provider.strip().lower():
            where = f"no answer from {server.name} at 127.0.0.1:{server.port}"
            return f"{where}: start it, or describe where it is in models.json (with --offline it is not asked)"
    return ""


def _find_script(text: str, provider: str | None) -> str | None:
    if text.lower().startswith("scripted/") and provider in (None, "scripted"):
        return text[len("scripted/") :] or None
    return text if provider == "scripted" else None


def split_provider(text: str, names: Names) -> tuple[str, str] | None:
    """Split `provider/rest` at the longest known provider, since ids may contain slashes."""
    for match in reversed(list(re.finditer("/", text))):
        id = names.find_provider(text[: match.start()])
        rest = text[match.end() :].strip()
        if id is not None and rest:
            return id, rest
    return None


def _match(text: str, names: Names, provider: str | None, *, anywhere: bool, accept: bool = False) -> ModelInfo | None:
    pool = names.of_provider(provider) if provider else names.candidates
    named = split_provider(text, names)
    if named is not None and provider in (None, named[0]):
        id, rest = named
        models = names.of_provider(id)
        least = _find_least(rest, names.known.get(id), accept=accept)
        found = _find_exact(rest, models) or _find_exact(text, models) or _find_best(rest, models, least)
        if found is not None:
            return found
        if not anywhere:
            return None
        # OpenRouter's ids look like provider/id: the whole text may be a model's id there.
        exact = [model for model in pool if _fold(model.id) == _fold(text)]
        return exact[0] if len(exact) == 1 else _find_best(text, pool) or _find_best(rest, pool)
    least = _find_least(text, names.known.get(provider or ""), accept=accept)
    found = _find_best(text, pool, least)
    if found is None and anywhere and "/" in text:
        found = _find_best(text.partition("/")[2], pool)
    return found


def _tell_others(text: str, names: Names) -> str:
    """A hint at another provider with this id, as at OpenRouter: only the user may choose it."""
    refs = [model.ref for model in names.candidates if _fold(model.id) == _fold(text)]
    return f"; another provider has this id: --model {refs[0]}" if refs else ""


def _find_exact(text: str, models: Iterable[ModelInfo]) -> ModelInfo | None:
    lower = text.lower()
    return next((model for model in models if model.id.lower() == lower), None)


def _find_least(text: str, provider: Provider | None, *, accept: bool) -> float:
    """The lowest accepted score: an id that may be new, such as `opus-9`, must not match an old one by shared words."""
    return _NAME_SCORE if accept and provider is not None and provider.takes_new and _is_id(text) else LOWEST_SCORE


def _is_id(text: str) -> bool:
    return text.isprintable() and not any(char.isspace() for char in text)


def _accept(text: str, names: Names, provider: str | None) -> ModelChoice | None:
    """An unlisted id that the provider may know, with the limits of the most similar model."""
    named = split_provider(text, names)
    id, rest = named if named is not None and provider in (None, named[0]) else (provider or "", text)
    known, models = names.known.get(id), names.of_provider(id)
    is_doubtful = _explain_level(text, names, provider, anywhere=False)
    if known is None or not known.takes_new or not models or not _is_id(rest) or is_doubtful:
        return None
    relative = find_relative(rest, models)
    info = known.guess(rest, relative)
    limits = f"the limits of {relative.id}" if relative else "cautious limits"
    close = ", ".join(_find_close(rest, models)[:3])
    return ModelChoice(
        info,
        reason=f"{info.ref} is not in the list of models. It is used as written, with {limits} (context "
        f"{info.context_window}, output {info.max_tokens} tokens)"
        + (f"; did you mean {close}?" if close else "")
        + " `retinue models --refresh` asks the provider for its list",
    )


def _find_best(text: str, models: Sequence[ModelInfo], least: float = LOWEST_SCORE) -> ModelInfo | None:
    """The first model with the best score.

    If several providers have the same id, the user must choose: raises ModelError.
    """
    if not text.strip():
        return None
    scored = [(score_model(text, model), model) for model in models]
    best = max((score for score, _ in scored), default=0.0)
    if best < least:
        return None
    tied = [model for score, model in scored if score == best]
    same = [model for model in tied if _fold(model.id) == _fold(tied[0].id)]
    if len({model.provider for model in same}) > 1:
        listed = ", ".join(model.ref for model in same)
        raise ModelError(f"model {quote(text)} is offered by several providers: {listed}; write provider/id")
    return tied[0]


def _explain_failure(text: str, names: Names, provider: str | None, *, anywhere: bool) -> str:
    named = split_provider(text, names)
    if provider is None and named is not None:
        provider, wanted = named
        if not names.of_provider(provider):
            return names.explain(names.known[provider]) + _tell_others(text, names)
    else:
        wanted = text
    head, slash, _ = text.partition("/")
    if provider is None and slash and (silent := _explain_silence(head)):
        return silent
    if level := _explain_level(text, names, provider, anywhere=anywhere):
        return level
    pool = names.of_provider(provider) if provider else list(names.candidates)
    of = f" of provider {provider}" if provider else ""
    close = _find_close(wanted, pool)
    if close:
        return f"unknown model {quote(text)}{of}; closest: {', '.join(close)}"
    if not provider and (missing := _find_without_key(wanted, names)):
        return f"model {quote(text)} cannot be used: {missing}"
    if provider is None and slash and (near := suggest(head, names.known)):
        return f"unknown model {quote(text)}: unknown provider {quote(head)}{near}"
    shown = [model.ref for model in pool]
    more = f" and {len(shown) - MOST_SHOWN} more (see retinue models)" if len(shown) > MOST_SHOWN else ""
    return f"unknown model {quote(text)}{of}; known: {', '.join(shown[:MOST_SHOWN])}{more}"


def _explain_level(text: str, names: Names, provider: str | None, *, anywhere: bool) -> str:
    base, colon, level = text.rpartition(":")
    if not colon or not base or _match(base, names, provider, anywhere=anywhere) is None:
        return ""
    return f"unknown thinking level {quote(level)} in {quote(text)}; expected one of {', '.join(THINKING_LEVELS)}"


def _find_close(wanted: str, pool: Sequence[ModelInfo]) -> list[str]:
    from difflib import get_close_matches  # slow import, needed only after a mistake

    by_id: dict[str, str] = {}
    for model in reversed(pool):
        by_id[_fold(model.id)] = by_id[_fold(model.ref)] = model.ref
    close = get_close_matches(_fold(wanted), list(by_id), n=8, cutoff=0.6)
    return list(dict.fromkeys(by_id[id] for id in close))[:5]


def _find_without_key(wanted: str, names: Names) -> str:
    """What to do about the provider that has the model but no key."""
    usable = {model.provider for model in names.candidates}
    best, found = 60.0, ""
    for provider in names.known.values():
        score = max((score_model(wanted, model) for model in provider.models), default=0.0)
        if provider.id not in usable and (score > best or (score == best and not found)):
            best, found = score, names.explain(provider)
    return found


class RequestedModel(Struct, frozen=True):
    """The model requested by flags and settings."""

    model: str | None = None
    provider: str | None = None
    default_model: str | None = None
    default_provider: str | None = None
    enabled_models: tuple[str, ...] = ()
    trouble: str = ""
    """Why the earlier choice is not available; then no provider is used that the user did not name."""


def choose_model(
    wishes: RequestedModel,
    names: Names,
    *,
    in_environment: Collection[str] = (),
    find_local: Callable[[], Sequence[ModelInfo]] = tuple,
) -> ModelChoice:
    """The model to start with: flags, settings, a key in the environment, another key, a local server, `offline/rules`.

    `find_local` is called only if nothing before it decides. Raises ModelError if a flag cannot be followed, or if a
    chosen model is not available and another provider would have to be used.
    """
    if wishes.model is not None or wishes.provider is not None:
        return _follow_flags(wishes, names, find_local)
    choice, trouble = _follow_settings(wishes, names, find_local)
    if choice is not None:
        return structs.replace(choice, reason=f"{trouble}using {choice.info.ref}") if wishes.trouble else choice
    usable = dict.fromkeys(model.provider for model in names.candidates if model.provider != OFFLINE_MODEL.provider)
    if trouble and usable:
        raise ModelError(f"{trouble}name another one with --model")
    for id in (*(id for id in usable if id in in_environment), *usable):
        info = names.known[id].default_model if id in names.known else names.of_provider(id)[0]
        if info is not None:
            return ModelChoice(info, reason=f"using {info.ref}, the first provider with a key")
    local = () if trouble else find_local()
    if local:
        return ModelChoice(local[0], reason=f"using {local[0].ref}, which answers at {local[0].base_url}")
    reason = (
        f"{trouble}using {OFFLINE_MODEL.ref}, a set of fixed rules and no language model: no provider has a key "
        "(run retinue login, or set ANTHROPIC_API_KEY, OPENAI_API_KEY or another; see retinue models)"
    )
    return ModelChoice(OFFLINE_MODEL, reason=reason)


def _follow_flags(wishes: RequestedModel, names: Names, find_local: Callable[[], Sequence[ModelInfo]]) -> ModelChoice:
    try:
        return _follow(wishes.model, wishes.provider, names)
    except ModelError:
        local = find_local()
        if not local:
            raise
        # Try again with the local models; this error replaces the first one.
        return _follow(wishes.model, wishes.provider, Names([*names.candidates, *local], names.known, names.explain))


def _follow(model: str | None, provider: str | None, names: Names) -> ModelChoice:
    if model is not None:
        return resolve_model(model, names, provider=provider, accept=True)
    id = _check_provider(provider or "", names)
    if id == "scripted":
        raise ModelError("provider scripted needs a file: use --model scripted/FILE")
    known = names.known.get(id)
    return ModelChoice((known.default_model if known else None) or names.of_provider(id)[0])


def _follow_settings(
    wishes: RequestedModel, names: Names, find_local: Callable[[], Sequence[ModelInfo]]
) -> tuple[ModelChoice | None, str]:
    """The model of the settings, or why it is not available.

    A default counts only if it is among the enabled models.
    """
    default, trouble = None, wishes.trouble
    if wishes.default_model or wishes.default_provider:
        try:
            default = _follow_flags(RequestedModel(wishes.default_model, wishes.default_provider), names, find_local)
        except ModelError as error:
            trouble = f"the default model of the settings cannot be used ({error}); "
    if default is not None and all(default.info.ref != info.ref for info in names.candidates):
        names = Names([*names.candidates, default.info], names.known, names.explain)
    scope = [choice for pattern in wishes.enabled_models for choice in match_pattern(pattern, names)]
    for choice in scope:
        if default is not None and choice.info.ref == default.info.ref:
            return ModelChoice(choice.info, choice.thinking or default.thinking), ""
    if wishes.enabled_models and not scope and default is None and not trouble:
        trouble = "none of the models in enabledModels can be used; "
    return scope[0] if scope else default, trouble


def match_pattern(pattern: str, names: Names) -> list[ModelChoice]:
    """The models that match an entry of `enabledModels`, which may be a glob."""
    try:
        return [resolve_model(pattern, names, accept=not set(pattern) & set("*?["))]
    except ModelError:
        if not set(pattern) & set("*?["):
            return []
    base, thinking = split_thinking(pattern) or (pattern, None)
    glob = re.compile(fnmatch.translate(base.strip().lower()))
    found = [model for model in names.candidates if glob.match(model.id.lower()) or glob.match(model.ref.lower())]
    return [ModelChoice(model, thinking) for model in found]
