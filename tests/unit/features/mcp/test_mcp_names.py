from retinue.features.mcp.server import find_server, name_tools


def test_odd_characters_become_underlines():
    assert name_tools("my-files", ["read.all"]) == {"read.all": "mcp__my-files__read_all"}


def test_same_names_all_get_a_hash():
    names = name_tools("s", ["a.b", "a b", "a-b", "c"])
    assert (names["c"], names["a-b"]) == ("mcp__s__c", "mcp__s__a-b")
    assert names["a.b"] != names["a b"]
    assert {names[tool][:12] for tool in ("a.b", "a b")} == {"mcp__s__a_b_"}


def test_long_names_are_cut_to_fit():
    names = name_tools("s" * 40, ["t" * 128, "t" * 127])
    assert [len(name) for name in names.values()] == [64, 64]
    assert len(set(names.values())) == 2


def test_longest_server_owns_the_name():
    assert find_server("mcp__a__b__c", ["a", "a__b"]) == "a__b"
    assert find_server("mcp__x__c", ["a"]) is None
