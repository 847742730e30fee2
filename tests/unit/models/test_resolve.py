import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.core.errors import ModelError
from retinue.core.messages import THINKING_LEVELS
from retinue.core.model import ModelInfo
from retinue.models.catalog import OFFLINE_MODEL, Provider, load_catalog
from retinue.models.resolve import ModelChoice, Names, RequestedModel, choose_model, resolve_model, score_model


def model(ref: str, name: str = "") -> ModelInfo:
    provider, _, id = ref.partition("/")
    return ModelInfo(provider, id, "openai-completions", name or id, "http://x")


def provider(id: str, *ids: str, default: str = "") -> Provider:
    models = tuple(model(f"{id}/{item}") for item in ids)
    return Provider(id, id, "openai-completions", "http://x", lambda: models, (f"{id.upper()}_KEY",), default)


ACME = provider("acme", "swift-5-5", "swift-5", "brain-4-6", "brain-4-5-20251101", default="brain-4-6")
GATE = provider("gate", "acme/swift-5.5", "acme/brain-4.6", "other/free:mini")
TWIN = provider("twin", "swift-5", "stone-1")
LOCKED = provider("locked", "vault-1", "vault-1-mini")
OFFLINE = Provider("offline", "Offline", "offline", "", lambda: (OFFLINE_MODEL,), needs_key=False)


def build(*usable: Provider) -> Names:
    known = {item.id: item for item in (ACME, GATE, TWIN, LOCKED, OFFLINE)}
    return Names([info for item in usable for info in item.models], known)


def pick(query: str, *usable: Provider, **options: object) -> tuple[str, str | None]:
    choice = resolve_model(query, build(*(usable or (ACME, GATE))), **options)  # type: ignore[arg-type]
    return choice.info.ref, choice.thinking


def explain(query: str, *usable: Provider, **options: object) -> str:
    with pytest.raises(ModelError) as caught:
        pick(query, *usable, **options)
    return str(caught.value)


@pytest.mark.spec("fleet:B94")
@pytest.mark.parametrize(
    ("query", "score"),
    [
        ("swift-5-5", 100),
        ("SWIFT-5.5", 100),
        ("acme/swift-5-5", 100),
        ("swift", 60 + 30 * 5 / 9),
        ("acme/swift", 90),
        ("quick one", 40 + 20 * 9 / 20),
        ("acme 5", 20),
        ("swift-5-5-20260101", 20),
        ("swift 20260101", 20),
        ("swift 6", 0),
        ("stone", 0),
    ],
)
def test_scores_follow_the_rule(query: str, score: float) -> None:
    assert score_model(query, model("acme/swift-5-5", "The quick one of ACME")) == pytest.approx(score, abs=0.7)


def test_number_inside_a_date_is_no_version() -> None:
    assert score_model("brain 9", model("acme/brain-4-5-20251109")) == 0


@pytest.mark.spec("fleet:B94")
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("acme/swift-5", ("acme/swift-5", None)),
        ("ACME/Swift-5", ("acme/swift-5", None)),
        (" acme/swift-5 ", ("acme/swift-5", None)),
        ("acme/swift-5:high", ("acme/swift-5", "high")),
        ("brain:off", ("acme/brain-4-6", "off")),
        ("brain 4.5", ("acme/brain-4-5-20251101", None)),
        ("gate/acme/brain-4.6", ("gate/acme/brain-4.6", None)),
        ("free:mini", ("gate/other/free:mini", None)),
        ("free:mini:low", ("gate/other/free:mini", "low")),
        ("acme/brain", ("acme/brain-4-6", None)),
        ("scripted/a b.json", ("scripted/a b.json", None)),
        ("scripted//tmp/x.json:high", ("scripted//tmp/x.json", "high")),
    ],
)
def test_name_finds_its_model(query: str, found: tuple[str, str | None]) -> None:
    assert pick(query) == found


def test_provider_flag_narrows_the_choice() -> None:
    assert pick("swift-5", ACME, TWIN, provider="TWIN") == ("twin/swift-5", None)
    assert pick("brain", ACME, GATE, provider="gate") == ("gate/acme/brain-4.6", None)
    assert pick("x.json", provider="scripted") == ("scripted/x.json", None)


def test_same_id_at_two_providers_is_ambiguous() -> None:
    assert explain("swift-5", ACME, TWIN) == (
        "model 'swift-5' is offered by several providers: acme/swift-5, twin/swift-5; write provider/id"
    )


def test_gateway_serves_nobody_elses_name() -> None:
    assert explain("acme/swift-5.5", GATE) == (
        "no key for provider acme: set ACME_KEY; another provider has this id: --model gate/acme/swift-5.5"
    )
    assert pick("acme/swift-5.5", GATE, anywhere=True) == ("gate/acme/swift-5.5", None)


def test_other_provider_only_on_request() -> None:
    assert explain("locked/swift-5", ACME) == "no key for provider locked: set LOCKED_KEY"
    assert pick("locked/swift-5", ACME, anywhere=True) == ("acme/swift-5", None)
    assert pick("nowhere/swift-5", ACME, anywhere=True) == ("acme/swift-5", None)


@pytest.mark.parametrize(
    ("query", "provider", "problem"),
    [
        ("", None, "the model name is empty; expected provider/id or a part of a model's name"),
        ("  ", "acme", "the model name is empty; expected provider/id or a part of a model's name"),
        (
            "x",
            "acm",
            "unknown provider 'acm' (did you mean 'acme'?); known: acme, gate, twin, locked, offline, scripted",
        ),
        ("x", "locked", "no key for provider locked: set LOCKED_KEY"),
        ("vault-1", None, "model 'vault-1' cannot be used: no key for provider locked: set LOCKED_KEY"),
        ("locked/vault-1", None, "no key for provider locked: set LOCKED_KEY"),
        ("acme/swfit-5", None, "unknown model 'acme/swfit-5' of provider acme; closest: acme/swift-5, acme/swift-5-5"),
        ("acme/swift-9", None, "unknown model 'acme/swift-9' of provider acme; closest: acme/swift-5, acme/swift-5-5"),
        (
            "acme/zzz",
            None,
            "unknown model 'acme/zzz' of provider acme; "
            "known: acme/swift-5-5, acme/swift-5, acme/brain-4-6, acme/brain-4-5-20251101",
        ),
        (
            "swift:extreme",
            None,
            "unknown thinking level 'extreme' in 'swift:extreme'; "
            "expected one of off, minimal, low, medium, high, xhigh, max",
        ),
    ],
)
def test_failure_says_what_would_work(query: str, provider: str | None, problem: str) -> None:
    assert explain(query, provider=provider) == problem


def test_silent_local_server_is_named() -> None:
    text = "no answer from Ollama at 127.0.0.1:11434: start it, or describe where it is in models.json"
    assert explain("ollama/tiny", ACME).startswith(text)
    assert explain("tiny", ACME, provider="Ollama").startswith(text)


def test_long_lists_are_cut() -> None:
    many = provider("many", *(f"m{number}" for number in range(50)))
    text = explain("zzz", many)
    assert text.endswith("many/m11 and 38 more (see retinue models)")


def choose(
    wishes: RequestedModel, *usable: Provider, local: Sequence[ModelInfo] = (), keys: Sequence[str] = ()
) -> ModelChoice:
    return choose_model(wishes, build(*usable, OFFLINE), in_environment=keys, find_local=lambda: local)


def test_flags_come_before_settings() -> None:
    wishes = RequestedModel("swift:low", None, "brain", "acme")
    assert choose(wishes, ACME) == ModelChoice(ACME.models[1], "low")
    assert choose(RequestedModel(provider="acme"), ACME).info.ref == "acme/brain-4-6"
    with pytest.raises(ModelError, match="unknown model 'zzz'"):
        choose(RequestedModel("zzz"), ACME)


def test_settings_come_before_keys() -> None:
    assert choose(RequestedModel(default_provider="gate", default_model="brain"), ACME, GATE) == ModelChoice(
        GATE.models[1]
    )
    assert choose(RequestedModel(default_model="acme/swift-5"), ACME, GATE) == ModelChoice(ACME.models[1])
    assert choose(RequestedModel(enabled_models=("nothing", "gate/*free*:low")), ACME, GATE) == ModelChoice(
        GATE.models[2], "low"
    )


@pytest.mark.parametrize(
    ("default", "enabled", "expected"),
    [
        ("acme/swift-5", ("gate/*free*:low", "acme/swift-5:high"), ModelChoice(ACME.models[1], "high")),
        ("acme/swift-5", ("gate/*free*:low", "acme/*"), ModelChoice(ACME.models[1])),
        ("acme/swift-5", ("gate/*free*:low",), ModelChoice(GATE.models[2], "low")),
        ("locked/vault-1", ("gate/*free*:low",), ModelChoice(GATE.models[2], "low")),
        ("acme/swift-5", ("nothing",), ModelChoice(ACME.models[1])),
    ],
)
def test_scope_comes_before_the_default(default: str, enabled: tuple[str, ...], expected: ModelChoice) -> None:
    assert choose(RequestedModel(default_model=default, enabled_models=enabled), ACME, GATE) == expected


def test_local_default_counts_in_scope() -> None:
    local = [model("ollama/tiny")]
    wishes = RequestedModel(default_model="ollama/tiny", enabled_models=("acme/*", "ollama/tiny:low"))
    assert choose(wishes, ACME, local=local) == ModelChoice(local[0], "low")


USELESS = "the default model of the settings cannot be used (no key for provider locked: set LOCKED_KEY); "


@pytest.mark.parametrize(
    ("wishes", "text"),
    [
        (RequestedModel(default_model="locked/vault-1"), USELESS),
        (RequestedModel(enabled_models=("locked/*", "nope")), "none of the models in enabledModels can be used; "),
        (RequestedModel(trouble="the model of this session cannot be used (x); "), "the model of this session"),
    ],
)
def test_useless_choice_leads_to_nobody_else(wishes: RequestedModel, text: str) -> None:
    with pytest.raises(ModelError, match=f"^{re.escape(text)}.*name another one with --model$"):
        choose(wishes, ACME, local=[model("ollama/tiny")])
    choice = choose(wishes, local=[model("ollama/tiny")])
    assert (choice.info, choice.reason.startswith(text)) == (OFFLINE_MODEL, True)


def test_session_goes_on_as_the_settings_say() -> None:
    wishes = RequestedModel(default_model="acme/swift-5", trouble="the model of this session cannot be used (x); ")
    assert choose(wishes, ACME, GATE).reason == "the model of this session cannot be used (x); using acme/swift-5"


def test_environment_comes_before_other_keys() -> None:
    assert choose(RequestedModel(), ACME, GATE, keys=["gate"]).info.ref == "gate/acme/swift-5.5"
    assert choose(RequestedModel(), ACME, GATE).info.ref == "acme/brain-4-6"


def test_local_server_comes_before_offline() -> None:
    local = [model("ollama/tiny")]
    assert choose(RequestedModel(), local=local) == ModelChoice(
        local[0], reason="using ollama/tiny, which answers at http://x"
    )
    assert choose(RequestedModel("ollama/tiny"), ACME, local=local) == ModelChoice(local[0])
    assert choose(RequestedModel(provider="ollama"), ACME, local=local) == ModelChoice(local[0])


def test_offline_rules_are_the_last_resort() -> None:
    choice = choose(RequestedModel())
    assert choice.info == OFFLINE_MODEL
    assert "no language model" in choice.reason


def test_local_servers_are_not_asked_in_vain() -> None:
    names = build(ACME, OFFLINE)
    found = choose_model(RequestedModel(), names, find_local=lambda: pytest.fail("asked"))
    assert found.info.ref == "acme/brain-4-6"


CATALOG = load_catalog()
ALL = [info for item in CATALOG.values() for info in item.models]
NAMES = Names(ALL, CATALOG)
REFS = st.sampled_from([info.ref for info in ALL])
QUERIES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["gpt", "claude", "gemini 3", "haiku", "4.5", ":", "/", "a/", "//", ":high", "scripted/"]),
    REFS.flatmap(lambda ref: st.integers(0, len(ref)).map(lambda cut: ref[:cut])),
)


@given(QUERIES, st.none() | st.sampled_from(["openai", "OpenRouter", "x", ""]), st.booleans())
def test_any_query_gives_choice_or_error(query: str, provider: str | None, anywhere: bool) -> None:
    try:
        choice = resolve_model(query, NAMES, provider=provider, anywhere=anywhere)
    except ModelError as error:
        assert 0 < len(str(error)) < 2000 and "\n" not in str(error)
    else:
        assert choice.info.provider == "scripted" or choice.info in ALL


@given(REFS, st.sampled_from([None, *THINKING_LEVELS]), st.sampled_from([str, str.upper, lambda ref: f" {ref}\t"]))
def test_full_name_always_finds_its_model(ref: str, level: str | None, write) -> None:
    choice = resolve_model(write(ref) + (f":{level}" if level else ""), NAMES)
    assert (choice.info.ref.lower(), choice.thinking) == (ref.lower(), level)
