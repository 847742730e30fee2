import pytest

from retinue.models.offline.question import Kind, parse_question


def about(question):
    return [concept.word for concept in question.concepts]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", Kind.CHAT),
        ("hello there", Kind.CHAT),
        ("what can you do?", Kind.CHAT),
        ("2 + 2?", Kind.CHAT),
        ("What does this project do?", Kind.OVERVIEW),
        ("give me an overview of the repository", Kind.OVERVIEW),
        ("How is the code organised?", Kind.OVERVIEW),
        ("How do I run the tests?", Kind.RUN),
        ("how to build it", Kind.RUN),
        ("What dependencies does it have?", Kind.FACT),
        ("Which Python version is required? what python version", Kind.FACT),
        ("Who calls parse_header?", Kind.USES),
        ("Where is Session used?", Kind.USES),
        ("Which files handle multipart?", Kind.WHERE),
        ("Explain src/app/main.py", Kind.FILE),
        ("Where is Session defined?", Kind.WHERE),
        ("How does retrying work?", Kind.HOW),
        ("What is the session used for?", Kind.HOW),
    ],
)
def test_kind_follows_the_words(text, kind):
    assert parse_question(text).kind is kind


def test_names_paths_and_quotes_are_taken_apart():
    question = parse_question('Where does `CookieJar.save()` in lib/jar.py raise "jar is closed"?')

    assert (question.symbols, question.paths, question.phrases) == (
        ("CookieJar.save",),
        ("lib/jar.py",),
        ("jar is closed",),
    )


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("what calls read_line", ("read_line",)),
        ("explain fooBar", ("fooBar",)),
        ("where is std::vector::push", ("std::vector::push",)),
        ("Where is quote defined?", ("quote",)),
        ("Where are the session files written?", ()),
    ],
)
def test_symbols_look_like_code(text, symbols):
    assert parse_question(text).symbols == symbols


def test_concepts_leave_filler_out():
    assert about(parse_question("How are the failing cookies actually stored by this function?")) == [
        "failing",
        "cookies",
        "stored",
    ]


def test_a_hyphenated_word_stays_one():
    (concept, _) = parse_question("Where is the wrap-up message?").concepts

    assert (concept.match(["wrap", "up", "text"]), concept.match(["wrap"])) == (1.0, 0.0)


def test_it_means_the_previous_subject():
    first = parse_question("Where is the event bus?")

    assert about(parse_question("And who calls it?", first)) == ["event", "bus"]


def test_an_order_is_a_change():
    question = parse_question("Please fix the cookie expiration in the jar")

    assert (question.change, about(question)) == (True, ["cookie", "expiration", "jar"])


def test_a_long_task_is_asked_by_its_question():
    question = parse_question("Background. " * 200 + "Where is the inbox?")

    assert (question.kind, about(question)) == (Kind.WHERE, ["inbox"])


def test_an_attached_file_is_a_path():
    question = parse_question('<file name="/repo/a.py">def secret_name(): pass</file>\nExplain this file')

    assert (question.kind, question.paths, question.symbols) == (Kind.FILE, ("/repo/a.py",), ())


def test_slashes_between_words_are_no_path():
    assert parse_question("How does the client/server handshake work?").paths == ()
