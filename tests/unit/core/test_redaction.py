import os
import random

import pytest

from retinue.core.redaction import MARK, Redactor, StreamRedactor, collect_secrets

SECRET = "cnry-77-q8Zt-very-secret"
KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n" * 20 + "-----END PRIVATE KEY-----\n"


def sift(sieve: StreamRedactor, data: bytes, sizes: list[int]) -> bytes:
    found, at = b"", 0
    for size in sizes:
        found += sieve.feed(data[at : at + size])
        at += size
    return found + sieve.feed(data[at:]) + sieve.finish()


@pytest.mark.parametrize("line", ["one\n", "", "x" * 200_000, "word " * 30_000])
def test_secret_is_found_across_pieces(line: str) -> None:
    data = f"{line}a={SECRET}\nb={SECRET} {line}".encode()
    seed = random.SystemRandom().randrange(10**9)
    print("seed", seed)
    dice = random.Random(seed)
    sizes = [dice.choice((1, 3, 17, 4096, 50_000)) for _ in range(200)]
    clean = sift(StreamRedactor(Redactor([SECRET]).redact), data, sizes)
    assert clean == data.replace(SECRET.encode(), MARK.encode())


def test_whole_key_is_found_across_pieces() -> None:
    data = f"before\n{KEY}after\n".encode()
    assert sift(StreamRedactor(Redactor(patterns=True).redact), data, [30] * 40) == b"before\n[redacted]\nafter\n"


def test_bytes_that_are_no_text_stay() -> None:
    data = os.urandom(10_000) + SECRET.encode() + os.urandom(10_000)
    assert sift(StreamRedactor(Redactor([SECRET]).redact), data, [7] * 500) == data.replace(
        SECRET.encode(), MARK.encode()
    )


def test_begun_key_does_not_hold_for_ever() -> None:
    sieve = StreamRedactor(Redactor(patterns=True).redact)
    data = b"-----BEGIN nothing\n" + b"line\n" * 30_000
    assert len(sieve.feed(data)) > 100_000


def test_passwords_in_addresses_are_secrets() -> None:
    environment = {"DATABASE_URL": "postgres://me:pa55word-x@host/db", "PAGE": "http://host/a:b@c", "PATH": "/bin"}
    assert collect_secrets(environment) == ["pa55word-x"]


WORD = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0x"
SHAPES = (
    *(f"sk-{WORD}", f"ghp_{WORD}", f"gho_{WORD}", f"ghu_{WORD}", f"ghs_{WORD}", f"ghr_{WORD}", f"github_pat_{WORD}"),
    *(f"glpat-{WORD}", f"xoxb-{WORD}", f"AIza{WORD}", f"hf_{WORD}", f"npm_{WORD}", f"eyJ{WORD}.{WORD}.{WORD}"),
    *("AKIAABCDEFGHIJKLMNOP", "ASIAABCDEFGHIJKLMNOP"),
)


@pytest.mark.attack("H4")
@pytest.mark.parametrize("shape", SHAPES)
def test_what_looks_like_a_key_is_taken_out(shape: str) -> None:
    assert Redactor(patterns=True).redact(f"a {shape} b") == "a [redacted] b"
    assert Redactor().redact(shape) == shape


@pytest.mark.attack("H4")
def test_keys_in_their_places_are_taken_out() -> None:
    redactor = Redactor(patterns=True)
    assert redactor.redact(f"Authorization: Bearer {WORD}") == "Authorization: Bearer [redacted]"
    assert redactor.redact("https://me:hunter22@host/") == "https://[redacted]@host/"
