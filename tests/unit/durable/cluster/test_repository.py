"""Which remotes another machine may be told of, and how."""

import pytest

from retinue.core.errors import RetinueError
from retinue.durable.cluster.repository import check_address, clean_address, hide_secrets, list_addresses


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://example.com/a/b.git", "https://example.com/a/b.git"),
        ("https://ann:secret@example.com:8443/a.git", "https://example.com:8443/a.git"),
        ("https://ghp_token@example.com/a.git", "https://example.com/a.git"),
        ("https://a@b:c@example.com/a.git", "https://example.com/a.git"),
        ("ssh://git:secret@example.com:2222/a.git", "ssh://git@example.com:2222/a.git"),
        ("ssh://example.com/~ann/a.git", "ssh://example.com/~ann/a.git"),
        ("git@example.com:a/b.git", "git@example.com:a/b.git"),
        ("example.com:/srv/a.git", "example.com:/srv/a.git"),
        ("http://[::1]:80/a.git", "http://[::1]:80/a.git"),
        ("git://127.0.0.1:9418/a", "git://127.0.0.1:9418/a"),
    ],
)
def test_address_loses_its_secrets(given: str, expected: str) -> None:
    assert clean_address(given) == expected
    check_address(expected)


@pytest.mark.parametrize(
    "given",
    [
        *("", "/srv/a.git", "../a.git", "file:///srv/a.git", "a.git", "./host:path", "C:\\a"),
        *("ext::sh -c touch% /tmp/x", "fd::7", "ext::x", "host::path", "transport::https://example.com/a"),
        *("--upload-pack=touch x", "-oProxyCommand=x:y", "ssh://-oProxyCommand=x/y", "ssh://-x@example.com/y"),
        *("git@-oProxyCommand=x:y", "host:-x", "https://example.com/a?private_token=x", "https://example.com/a#x"),
        *("https://example.com", "https:///a", "https://exa mple.com/a", "https://example.com/a\nb", "ftp://h/a"),
        *("https://example.com:port/a", "https://[bad/a", "https://exämple.com/a", "https://example.com/" + "a" * 3000),
    ],
)
def test_other_addresses_are_refused(given: str) -> None:
    assert clean_address(given) == ""
    with pytest.raises(RetinueError, match="expected an https, http, ssh or git address without a password"):
        check_address(given)


def test_address_with_password_is_refused() -> None:
    with pytest.raises(RetinueError) as caught:
        check_address("https://ann:secret@example.com/a")
    assert "secret" not in str(caught.value)


def test_remotes_are_rewritten_as_configured() -> None:
    entries = [
        ("global", "url.https://example.com/.insteadof", "ex:"),
        ("global", "url.ssh://git@example.com/deep/.insteadof", "ex:deep/"),
        ("local", "remote.fork.url", "ex:deep/b"),
        ("local", "remote.origin.url", "ex:a"),
        ("local", "remote.origin.url", "ex:second"),
        ("local", "remote.other.name.url", "/srv/a"),
    ]
    assert list(list_addresses(entries).items()) == [
        ("origin", "https://example.com/a"),
        ("fork", "ssh://git@example.com/deep/b"),
        ("other.name", "/srv/a"),
    ]


def test_secrets_in_messages_are_hidden() -> None:
    told = "fatal: unable to access 'https://ann:secret@example.com/a/': no"
    assert hide_secrets(told) == "fatal: unable to access 'https://example.com/a/': no"
