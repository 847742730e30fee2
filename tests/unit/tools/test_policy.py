from random import Random, randrange

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from retinue.core.definition import DeclaredTools, Definition
from retinue.core.tool import Effect
from retinue.tools.policy import (
    BUILTIN_OFFERS,
    SUBAGENT_READONLY,
    Rights,
    Terms,
    ToolRefusal,
    decide_extra,
    decide_tools,
)
from retinue.tools.registry import ToolOptions, build_tools
from retinue.tools.selectors import Offer, to_extension_name

ALL = tuple(BUILTIN_OFFERS)
WEB = {name: Offer(Effect.NETWORK) for name in ("web_search", "fetch_content")}
CREW = {"Agent": Offer(Effect.DELEGATE), "get_subagent_result": Offer(Effect.DELEGATE)}
EXTENSIONS = {
    "deploy": Offer(Effect.EXECUTE, "Ops"),
    "status": Offer(Effect.READ, "Ops"),
    "lookup": Offer(Effect.READ, "wiki"),
    "mcp__git__log": Offer(Effect.READ, "mcp", "git"),
    "mcp__git__push": Offer(Effect.NETWORK, "mcp", "git"),
    "mcp__db__query": Offer(Effect.NETWORK, "mcp", "db"),
}
WORLD = {**BUILTIN_OFFERS, "lsp": Offer(Effect.READ), **WEB, **CREW, **EXTENSIONS}
PLAIN = Terms(available=BUILTIN_OFFERS)
OWN = {name: offer for name, offer in WORLD.items() if offer.extension is None}


def define(names=None, *, dialect="pi", **fields):
    tools = {key: fields.pop(key) for key in list(fields) if key in DeclaredTools.__struct_fields__}
    return Definition(
        name="a", dialect=dialect, source="user", path="a.md", tools=DeclaredTools(names=names, **tools), **fields
    )


def decide(definition, available=WORLD, **terms):
    return decide_tools(definition, Terms(available=available, **terms))


def reasons(rights):
    return {refusal.name: refusal.code for refusal in rights.refused}


def test_builtin_offers_match_real_tools():
    assert list(BUILTIN_OFFERS.items()) == [
        (name, Offer(build_tools(ToolOptions())[name].effect)) for name in BUILTIN_OFFERS
    ]


@pytest.mark.spec("fleet:B23")
def test_no_list_means_all_builtins():
    assert decide_tools(define(), PLAIN) == Rights(ALL)


@pytest.mark.attack("E5")
@pytest.mark.spec("fleet:B23", "devkit:26")
def test_empty_list_is_empty():
    assert decide(define(()), is_exact=True) == Rights()


@pytest.mark.attack("E5")
@pytest.mark.spec("fleet:B23")
def test_star_adds_builtins_to_names():
    assert decide(define(("web_search",), all_builtins=True), OWN).allowed == (*ALL, "web_search")


@pytest.mark.spec("fleet:B25")
def test_unknown_name_is_told_with_the_closest():
    rights = decide_tools(define(("read", "gerp")), PLAIN)
    assert rights == Rights(
        ("read",), (ToolRefusal("gerp", "unknown", "there is no tool 'gerp' here (did you mean 'grep'?)"),)
    )


@pytest.mark.attack("E5")
@pytest.mark.spec("fleet:B33")
def test_denied_tool_loses_though_listed():
    rights = decide_tools(define(("read", "write"), denied=("write",)), PLAIN)
    assert rights == Rights(("read",), (ToolRefusal("write", "denied", "write is denied by the agent's own file"),))


@pytest.mark.attack("E5")
@pytest.mark.parametrize("word", ["Bash", "BASH"])
def test_misspelt_denial_still_denies(word):
    rights = decide_tools(define(("bash", "ls"), denied=(word,)), PLAIN)
    assert (rights.allowed, rights.warnings) == (("ls",), (f"disallowed tool '{word}' is taken as bash",))


def test_denial_of_nothing_is_told():
    assert decide_tools(define(("ls",), denied=("wirte",)), PLAIN).warnings == (
        "unknown disallowed tool 'wirte' (did you mean 'write'?)",
    )


@pytest.mark.parametrize("word", ["*", "All"])
def test_denying_all_leaves_nothing(word):
    assert decide(define(denied=(word,))).allowed == ()


@pytest.mark.attack("E13")
def test_user_denial_reaches_every_agent():
    rights = decide(define(("read", "mcp__db__query")), user_denied=("db:query", "read"), is_exact=True)
    assert (rights.allowed, reasons(rights)) == ((), {"read": "user", "mcp__db__query": "user"})


@pytest.mark.spec("devkit:22", "codingcode:14")
def test_readonly_drops_what_can_write():
    rights = decide(define(("read", "edit", "write", "bash", "web_search"), readonly=True), OWN)
    assert (rights.allowed, rights.readonly) == (("read", "web_search"), True)
    assert reasons(rights) == {"edit": "readonly", "write": "readonly", "bash": "sandbox"}


def test_readonly_bash_needs_sandbox():
    wanted = define(("read", "bash"), readonly=True)
    without = decide(wanted, OWN, confinement="bwrap is not installed")
    text = "SANDBOX_UNAVAILABLE: bwrap is not installed; bash is given to a read-only agent inside a sandbox only"
    assert without.refusals == {"bash": text}
    assert decide(wanted, OWN, is_confined=True) == Rights(("read", "bash"), readonly=True)


@pytest.mark.spec("devkit:22", "devkit:23")
def test_surface_list_of_readonly_tools_is_exact():
    wanted = define((*ALL, "lsp", *WEB, "Agent"), readonly=True)
    terms = {"readonly_set": SUBAGENT_READONLY, "is_exact": True, "is_confined": True}
    assert decide(wanted, **terms).allowed == ("read", "grep", "find", "ls", "lsp", *WEB)
    assert "bash" in decide(wanted, **terms, readonly_bash=True).allowed
    assert "bash" not in decide(wanted, **{**terms, "is_confined": False}, readonly_bash=True).allowed


@pytest.mark.spec("devkit:23")
def test_writing_needs_the_surface_switch():
    wanted = define(("read", "write", "bash"))
    terms = {"readonly_set": SUBAGENT_READONLY, "is_exact": True}
    off, on = decide(wanted, allow_write=False, **terms), decide(wanted, allow_write=True, **terms)
    assert (off.allowed, off.readonly, reasons(off)) == (("read",), True, {"write": "write", "bash": "write"})
    assert on == Rights(("read", "write", "bash"))


def test_switch_does_not_free_a_readonly_agent():
    assert decide(define(("read", "write"), readonly=True), OWN, allow_write=True).allowed == ("read",)


@pytest.mark.spec("devkit:24")
def test_lsp_goes_with_its_switch():
    rights = decide(define(("read", "lsp")), OWN, has_lsp=False)
    assert (rights.allowed, reasons(rights)) == (("read",), {"lsp": "lsp"})


def test_child_has_at_most_its_parents_tools():
    rights = decide_tools(define(), replace(PLAIN, parent=Rights(("ls", "read"))))
    assert (rights.allowed, set(reasons(rights).values())) == (("read", "ls"), {"parent"})


@pytest.mark.attack("E1", "E11")
def test_readonly_passes_to_children():
    rights = decide(define(("read", "write", "bash")), OWN, parent=Rights(ALL, readonly=True), is_confined=True)
    assert (rights.allowed, rights.readonly) == (("read", "bash"), True)


def test_delegation_needs_to_be_asked_for():
    assert decide(define(), OWN).allowed == ALL
    assert decide(define(("read", "Agent")), OWN).allowed == ("read", "Agent")
    assert decide(define(("read",), allowed_subagents=("Explore",)), OWN).allowed == ("read", *CREW)
    assert decide(define(("read",), allowed_subagents=()), OWN).allowed == ("read",)


@pytest.mark.spec("codingcode:26")
def test_deepest_agent_cannot_delegate():
    rights = decide(define(("read", "Agent")), OWN, may_nest=False)
    assert (rights.allowed, reasons(rights)) == (("read",), {"Agent": "depth"})


def test_extensions_come_with_pi_agents():
    assert decide(define(("read",))).allowed == ("read", *EXTENSIONS)
    assert decide(define(("read",)), is_exact=True).allowed == ("read",)


@pytest.mark.spec("fleet:B34")
def test_isolated_drops_extensions_and_selectors():
    rights = decide(define(("read", "lookup"), selectors=("ext:ops/status",), isolated=True))
    assert (rights.allowed, reasons(rights)) == (("read",), {"lookup": "isolated", "status": "isolated"})


@pytest.mark.spec("fleet:B24", "fleet:B35")
def test_selector_hides_other_extensions():
    assert decide(define((), selectors=("ext:ops",))).allowed == ("deploy", "status")
    assert decide(define((), selectors=("ext:ops", "ext:ops/status"))).allowed == ("status",)


@pytest.mark.spec("fleet:B35")
def test_exclusion_beats_selector():
    rights = decide(define((), selectors=("ext:ops/status",), exclude_extensions=("OPS",)))
    assert (rights.allowed, reasons(rights)) == ((), {"status": "excluded"})


@pytest.mark.spec("fleet:B36")
def test_only_extension_names_ignore_case():
    rights = decide(define((), selectors=("ext:OPS/status", "ext:ops/Deploy")))
    assert (rights.allowed, reasons(rights)) == (("status",), {"ext:ops/Deploy": "unknown"})


def test_extension_lists_name_files_too():
    names = ["~/x/Ops.py", "./ops/index.ts", r"c:\ops\__init__.py", "OPS", "ops.js"]
    assert [to_extension_name(name) for name in names] == ["ops"] * 5
    assert decide(define((), extensions=("./lib/ops.py",))).allowed == ("deploy", "status")
    assert decide(define((), extensions=("x", "*"))).allowed == tuple(EXTENSIONS)
    assert decide(define((), extensions=False)).allowed == ()


def test_idle_extension_words_are_told():
    rights = decide(define((), extensions=("ops", "gone"), exclude_extensions=("ops", "lost")))
    assert rights.warnings == (
        "excluded extension 'lost' is not there",
        "extension 'gone' is not loaded",
        "extension 'ops' is both listed and excluded; it is excluded",
    )
    assert decide(define((), extensions=False, exclude_extensions=("wiki",))).warnings == (
        "exclude_extensions has no effect: the agent has no extensions",
    )


def test_extension_without_tools_is_known():
    silent = define((), extensions=("quiet", "broken"), exclude_extensions=("other",))
    terms = {"extensions": frozenset(("quiet", "broken", "other", "ops")), "failed": frozenset(("broken",))}
    assert decide(silent, **terms).warnings == ("extension 'broken' is not loaded",)


def test_always_exposed_extension_beats_lists_only():
    exposed = {"always_exposed": ("Wiki",)}
    assert "lookup" in decide(define((), selectors=("ext:ops",)), **exposed).allowed
    assert "lookup" in decide(define((), extensions=("ops",)), **exposed).allowed
    for losing in (
        {"isolated": True},
        {"extensions": False},
        {"exclude_extensions": ("wiki",)},
        {"denied": ("lookup",)},
    ):
        assert "lookup" not in decide(define((), **losing), **exposed).allowed


@pytest.mark.parametrize("word", ["git:log", "mcp__git__log"])
def test_mcp_tool_is_named_by_its_server(word):
    assert decide(define((word,)), is_exact=True).allowed == ("mcp__git__log",)


@pytest.mark.parametrize("word", ["ext:mcp/log", "ext:MCP/git:log", "ext:mcp/mcp__git__log"])
def test_mcp_tool_is_selected_as_extension(word):
    assert decide(define((), selectors=(word,))).allowed == ("mcp__git__log",)


def test_selector_does_not_match_the_end_of_a_name():
    world = {"mcp__git__full__log": Offer(Effect.READ, "mcp", "git")}
    assert decide(define((), selectors=("ext:mcp/log",)), world).allowed == ()


@pytest.mark.spec("codingcode:31")
def test_listed_servers_add_their_tools():
    rights = decide(define(("read", "db:query"), dialect="codingcode", mcp_servers=("git",)))
    assert (rights.allowed, reasons(rights)) == (
        ("read", "mcp__git__log", "mcp__git__push"),
        {"mcp__db__query": "servers"},
    )


def test_foreign_network_tools_are_not_readonly():
    rights = decide(define(("git:log", "git:push", "web_search"), readonly=True), is_exact=True)
    assert (rights.allowed, reasons(rights)) == (("mcp__git__log", "web_search"), {"mcp__git__push": "readonly"})


@pytest.mark.spec("codingcode:12", "codingcode:13")
def test_model_sees_the_names_of_its_file():
    aliases = {"read_file": "read", "search_code": "grep", "execute_command": "bash", "fetch_url": "fetch_content"}
    some = decide(define(("search_code", "read_file"), dialect="codingcode", aliases=aliases))
    assert (some.allowed, some.tools) == (("search_code", "read_file"), {"grep", "read"})
    every = decide_tools(define(dialect="codingcode", aliases=aliases), PLAIN)
    assert every.allowed == ("read_file", "search_code", "execute_command")
    star = decide_tools(define((), all_builtins=True, dialect="codingcode", aliases=aliases), PLAIN)
    assert star == every
    denied = decide(define(("execute_command",), dialect="codingcode", aliases=aliases, denied=("execute_command",)))
    assert reasons(denied) == {"execute_command": "denied"}


@pytest.mark.spec("sticky:18", "sticky:19")
def test_sticky_list_is_exact():
    rights = decide(define(("read", "subagent_finalize"), dialect="sticky"))
    assert (rights.allowed, reasons(rights)) == (("read",), {"subagent_finalize": "internal"})


@pytest.mark.spec("sticky:20")
def test_sticky_denials_inherit_the_rest():
    parent = Rights(("Agent", "read", "lookup", "bash"))
    rights = decide(define(dialect="sticky", inherits=True, denied=("bash",)), parent=parent)
    assert (rights.allowed, reasons(rights)) == (("read", "lookup"), {"bash": "denied"})


def test_extra_tools_obey_all_but_the_list():
    wanted = define((), denied=("edit",))
    parent = Rights(("read", "edit"))
    rights = decide_extra(("read", "write", "edit"), wanted, Terms(available=WORLD, parent=parent))
    assert (rights.allowed, reasons(rights)) == (("read",), {"write": "parent", "edit": "denied"})


NAMES = [*WORLD, "nothing", "Read", "subagent_finalize"]
WORDS = st.lists(st.sampled_from([*NAMES, "git:log", "db:query", "x:y"]), max_size=8).map(tuple)
SELECTORS = ["ext:ops", "ext:Ops/deploy", "ext:wiki", "ext:mcp/log", "ext:mcp/git:push", "ext:gone"]
SOME = st.lists(st.sampled_from(["ops", "Wiki", "mcp", "gone", "*"]), max_size=3).map(tuple)
DEFINITIONS = st.builds(
    define,
    st.none() | WORDS,
    dialect=st.sampled_from(["pi", "codingcode", "sticky"]),
    all_builtins=st.booleans(),
    inherits=st.booleans(),
    denied=st.lists(st.sampled_from([*NAMES, "git:log", "ext:ops", "BASH"]), max_size=3).map(tuple),
    selectors=st.lists(st.sampled_from(SELECTORS), max_size=2).map(tuple),
    aliases=st.sampled_from([{}, {"read_file": "read", "run": "bash", "put": "write"}]),
    readonly=st.booleans(),
    isolated=st.sampled_from([None, False, True]),
    extensions=st.booleans() | SOME,
    exclude_extensions=SOME,
    mcp_servers=st.sampled_from([(), ("git",)]),
    allowed_subagents=st.sampled_from([None, (), ("x",)]),
)
TERMS = st.builds(
    Terms,
    available=st.sets(st.sampled_from(list(WORLD))).map(lambda kept: {n: o for n, o in WORLD.items() if n in kept}),
    readonly=st.booleans(),
    allow_write=st.sampled_from([None, False, True]),
    readonly_set=st.sampled_from([None, SUBAGENT_READONLY, frozenset({"write", "bash", "deploy", "read"})]),
    readonly_bash=st.booleans(),
    is_exact=st.booleans(),
    is_confined=st.booleans(),
    has_lsp=st.booleans(),
    may_nest=st.booleans(),
    isolated=st.booleans(),
    always_exposed=SOME,
    user_denied=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
)


@pytest.mark.attack("E1", "SEC-6")
@given(st.lists(DEFINITIONS, min_size=1, max_size=5), TERMS)
def test_chain_of_children_never_widens(chain, terms):
    parent = None
    for definition in chain:
        rights = decide_tools(definition, replace(terms, parent=parent))
        if parent is not None:
            assert rights.tools <= parent.tools
            assert rights.readonly >= parent.readonly
        parent = rights


@given(DEFINITIONS, TERMS)
def test_denied_tools_are_never_there(definition, terms):
    tools = decide_tools(definition, terms).tools
    denied = {name.lower() for name in (*definition.tools.denied, *terms.user_denied)}
    assert not {tool for tool in tools if tool.lower() in denied}
    assert "ext:ops" not in denied or not tools & {"deploy", "status"}


@given(DEFINITIONS, TERMS)
def test_readonly_holds_nothing_that_writes(definition, terms):
    rights = decide_tools(definition, terms)
    if rights.readonly:
        offers = {tool: WORLD[tool] for tool in rights.tools}
        assert terms.is_confined or "bash" not in offers
        assert not [tool for tool, offer in offers.items() if offer.effect is Effect.WRITE]
        assert {tool for tool, offer in offers.items() if offer.effect is Effect.EXECUTE} <= {"bash"}
        assert not [t for t, offer in offers.items() if offer.effect is Effect.NETWORK and offer.extension]
    assert rights.readonly or not (definition.readonly or terms.readonly or terms.allow_write is False)


@given(DEFINITIONS, TERMS)
def test_every_wish_has_one_answer(definition, terms):
    rights = decide_tools(definition, terms)
    refused = [refusal.name for refusal in rights.refused]
    assert len(set(refused)) == len(refused)
    assert not set(refused) & set(rights.allowed)
    if definition.tools.names is not None and not definition.tools.inherits:
        answered = {*rights.allowed, *refused}
        plain = {name for name in definition.tools.names if ":" not in name}
        assert plain <= answered
        if not definition.tools.all_builtins and not any(":" in name for name in definition.tools.names):
            order = [name for name in dict.fromkeys(definition.tools.names) if name in rights.allowed]
            assert list(rights.allowed[: len(order)]) == order


@given(DEFINITIONS, TERMS)
def test_deciding_again_changes_nothing(definition, terms):
    rights = decide_tools(definition, terms)
    again = decide_tools(definition, replace(terms, parent=rights))
    assert (again.allowed, again.readonly) == (rights.allowed, rights.readonly)


@given(DEFINITIONS, TERMS)
def test_allowed_tools_exist(definition, terms):
    rights = decide_tools(definition, terms)
    assert rights.tools <= set(terms.available)
    assert terms.may_nest or not rights.tools & set(CREW)
    assert (
        definition.tools.names != ()
        or definition.tools.all_builtins
        or not rights.tools & set(BUILTIN_OFFERS)
        or (definition.tools.inherits)
    )


def draw(dice):
    """One definition and its surroundings, without the cost of a strategy."""

    def some(words, most):
        return tuple(dice.choices(words, k=dice.randint(0, most)))

    definition = define(
        dice.choice([None, some([*NAMES, "git:log", "db:query", "x:y"], 8)]),
        dialect=dice.choice(["pi", "codingcode", "sticky"]),
        all_builtins=dice.random() < 0.3,
        inherits=dice.random() < 0.3,
        denied=some([*NAMES, "git:log", "ext:ops", "BASH"], 2),
        selectors=some(SELECTORS, 2) if dice.random() < 0.3 else (),
        readonly=dice.random() < 0.2,
        isolated=dice.choice([None, None, True]),
        extensions=dice.choice([True, True, False, ("ops", "mcp")]),
        allowed_subagents=dice.choice([None, ("x",)]),
    )
    terms = Terms(
        available={name: offer for name, offer in WORLD.items() if dice.random() < 0.8},
        allow_write=dice.choice([None, None, False, True]),
        readonly_set=dice.choice([None, None, SUBAGENT_READONLY]),
        is_confined=dice.random() < 0.5,
        may_nest=dice.random() < 0.7,
        user_denied=some(NAMES, 1),
    )
    return definition, terms


@pytest.mark.attack("E1", "E5", "SEC-6")
def test_ten_thousand_spawns_never_widen(measure):
    seed = randrange(2**32)
    dice = Random(seed)
    measure("SEC-6", "rules", wider=0, tuples=10_000)
    for number in range(2_000):
        parent = Rights(tuple(WORLD))
        for depth in range(1, 6):
            definition, terms = draw(dice)
            rights = decide_tools(definition, replace(terms, parent=parent))
            told = (seed, number, depth)
            assert rights.tools <= parent.tools, told
            assert rights.readonly >= parent.readonly, told
            assert not rights.tools & set(terms.user_denied), told
            assert not (rights.readonly and rights.tools & {"write", "edit", "deploy", "mcp__git__push"}), told
            parent = rights
