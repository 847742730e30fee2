from retinue.sandbox.profile import Profile
from retinue.sandbox.seatbelt import canonicalise, render_profile


def test_everything_is_denied_first() -> None:
    text = render_profile(Profile("/work"), tmp="/tmp/x")
    assert text.startswith("(version 1)\n(deny default)\n")
    assert text.count("(") == text.count(")")
    assert '(subpath "/private/tmp/x")' in text
    assert '(subpath "/work")' not in text
    assert "(allow network*)" not in text


def test_writing_profile_protects() -> None:
    profile = Profile("/work", "workspace_write", True, secrets=("/h/.ssh",), protected=('/work/"q"',))
    text = render_profile(profile, tmp="/tmp/x")
    writing, protecting = text.index('(subpath "/work")'), text.index('(subpath "/work/\\"q\\"")')
    assert writing < text.index('(deny file-read* file-write*\n    (subpath "/h/.ssh"))') < protecting
    assert "(allow network*)" in text


def test_aliases_become_real() -> None:
    assert [canonicalise(path) for path in ("/tmp", "/var/x", "/variable")] == [
        *("/private/tmp", "/private/var/x", "/variable")
    ]


def test_own_private_directory_is_open() -> None:
    text = render_profile(Profile("/work", secrets=("/tmp/retinue-0",)), tmp="/tmp/retinue-0/x")
    hidden = text.index('(deny file-read* file-write*\n    (subpath "/private/tmp/retinue-0"))')
    assert text.index('(allow file-read* file-write*\n    (subpath "/private/tmp/retinue-0/x"))') > hidden
