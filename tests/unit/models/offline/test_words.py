import pytest

from retinue.models.offline.words import find_synonyms, has_stem, split_pieces, stem


@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("readHTTPHeader2", ["read", "http", "header", "2"]),
        ("_snake_case_name", ["snake", "case", "name"]),
        ("src/web/CookieJar.ts", ["src", "web", "cookie", "jar", "ts"]),
    ],
)
def test_pieces_of_names(name, pieces):
    assert split_pieces(name) == pieces


@pytest.mark.parametrize(
    ("asked", "coded"),
    [("parsing", "parser"), ("retries", "retry"), ("validated", "valid"), ("sessions", "session"), ("stored", "store")],
)
def test_forms_of_a_word_meet(asked, coded):
    assert has_stem(coded, stem(asked))


@pytest.mark.parametrize(("root", "piece"), [("log", "login"), ("test", "contest"), ("port", "portrait")])
def test_other_words_do_not_meet(root, piece):
    assert not has_stem(piece, root)


def test_synonyms_reach_across_forms():
    assert {"save", "persist", "append"} <= set(find_synonyms("writing"))
