"""Addresses of git remotes that another machine can use: without secrets, and without a program in disguise."""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from retinue.core.errors import RetinueError, quote

MAX_ADDRESS = 2048
_SCHEMES = {"https", "http", "ssh", "git", "git+ssh", "ssh+git"}
_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*)|\[[0-9A-Fa-f:.]+\])"
_USER = r"[A-Za-z0-9_.~][A-Za-z0-9_.~-]*"
_SCP = re.compile(rf"(?![A-Za-z]:)(?:{_USER}@)?{_HOST}:[^:\\-][^\\]*")
_CLEAN = re.compile(rf"(?:{_USER}@)?{_HOST}(?::[0-9]{{1,5}})?")
_SECRET = re.compile(r"(://)[^/@\s]*@")


def clean_address(address: str) -> str:
    """The address without names and passwords; empty when it leads to no other machine, or is not plain enough.

    A name is kept where it is no secret and nothing works without: that of ssh.
    """
    if len(address) > MAX_ADDRESS or not address.isprintable() or " " in address or not address.isascii():
        return ""
    if "://" not in address:
        # As in `git@host:path`; whatever has a slash before the colon, or no colon, is a path.
        return address if _SCP.fullmatch(address) and "::" not in address else ""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    # What follows a question mark may be a secret as well.
    if parts.scheme not in _SCHEMES or "?" in address or "#" in address or not parts.path.strip("/"):
        return ""
    user, _, host = parts.netloc.rpartition("@")
    name = user.partition(":")[0]
    netloc = f"{name}@{host}" if name and "ssh" in parts.scheme else host
    return f"{parts.scheme}://{netloc}{parts.path}" if _CLEAN.fullmatch(netloc) else ""


def check_address(address: str) -> None:
    """Raise RetinueError unless git may be given this address."""
    if not address or clean_address(address) != address:
        raise RetinueError(
            f"the run names a remote that cannot be used, {quote(hide_secrets(address), 200)}; expected "
            "an https, http, ssh or git address without a password"
        )


def hide_secrets(text: str) -> str:
    """A text without names and passwords in the addresses it mentions."""
    return _SECRET.sub(r"\1", text)


def list_addresses(entries: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    """Each remote of a configuration with its address as git would use it, `origin` first."""
    found: dict[str, str] = {}
    rewrites: dict[str, str] = {}
    for _, key, value in entries:
        section, _, rest = key.partition(".")
        name, _, last = rest.rpartition(".")
        if section == "remote" and last == "url":
            # Of several git fetches from the first.
            found.setdefault(name, value)
        elif section == "url" and last == "insteadof" and value:
            rewrites[value] = name
    ordered = sorted(found, key=lambda name: (name != "origin", name))
    return {name: _rewrite(found[name], rewrites) for name in ordered}


def _rewrite(address: str, rewrites: Mapping[str, str]) -> str:
    fitting = [start for start in rewrites if address.startswith(start)]
    if not fitting:
        return address
    start = max(fitting, key=len)
    return rewrites[start] + address[len(start) :]
