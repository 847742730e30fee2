"""`retinue login` and `retinue logout`: store an API key or a sign-in to an MCP server in auth.json, and remove it."""

import asyncio
import sys

from retinue.app import StoredKeys
from retinue.cli.options import Options
from retinue.cli.voice import ask_line, say
from retinue.core.errors import KeyRefused, ModelError, RetinueError, UsageError

_LONGEST = 65_536
_MCP = "mcp:"
_WAIT_LIMIT_S = 300.0


def run_login(options: Options) -> int:
    """Read a key, check it with one request and store it; or sign in to an MCP server."""
    if options.words and options.words[0].startswith(_MCP):
        return _log_in(options, options.words[0].removeprefix(_MCP))
    keys = StoredKeys()
    provider = keys.find(options.words[0] if options.words else _ask_provider(keys))
    key = _read_key(provider)
    if not options.no_check:
        _check(keys, provider, key, offline=options.offline)
    keys.store(provider, key)
    how = "stored without a check" if options.no_check else "works and is stored"
    sys.stdout.write(f"{provider}: the key {how} in {keys.path}\n")
    return 0


def _log_in(options: Options, name: str) -> int:
    from retinue.app.mcp import log_in

    if options.offline:
        raise UsageError("retinue login mcp:NAME needs the network; leave out --offline")

    async def show(url: str) -> None:
        say(f"to sign in to {name}, open this page in a browser on this machine:\n{url}")
        if sys.stderr.isatty():
            import webbrowser

            await asyncio.to_thread(webbrowser.open, url)

    was_needed, path = asyncio.run(log_in(name, options.approve, show, _WAIT_LIMIT_S))
    done = f"signed in; the tokens are stored in {path}" if was_needed else "asks for no sign-in; nothing is stored"
    sys.stdout.write(f"{_MCP}{name}: {done}\n")
    return 0


def _check(keys: StoredKeys, provider: str, key: str, *, offline: bool) -> None:
    try:
        keys.check(provider, key, offline=offline)
    except KeyRefused as error:
        raise KeyRefused(f"{provider} does not accept this key; nothing is stored ({error})") from None
    except ModelError as error:
        todo = f"to store it anyway: retinue login {provider} --no-check"
        raise RetinueError(f"the key cannot be checked; nothing is stored ({error}); {todo}") from None


def _ask_provider(keys: StoredKeys) -> str:
    """Ask for a provider by its number or name. Raises UsageError without a terminal."""
    rows = keys.list_providers()
    if not sys.stdin.isatty():
        raise UsageError(f"which provider? retinue login NAME, with one of: {', '.join(row.id for row in rows)}")
    for number, row in enumerate(rows, 1):
        source = f"  (has a key: {row.source})" if row.source else ""
        sys.stderr.write(f"{number:>3}  {row.id:<12} {row.name}{source}\n")
    answer = ask_line("Provider, by number or name: ").strip()
    if not answer:
        raise UsageError("no provider was chosen; nothing is stored")
    is_number = answer.isdecimal() and 0 < int(answer) <= len(rows)
    return rows[int(answer) - 1].id if is_number else answer


def _read_key(provider: str) -> str:
    """The key from a terminal, where it is not shown, or from a pipe."""
    if sys.stdin.isatty():
        from getpass import getpass

        try:
            key = getpass(f"API key for {provider} (not shown): ", sys.stderr)
        except EOFError:
            key = ""
    else:
        key = sys.stdin.read(_LONGEST)
    if not key.strip():
        raise UsageError(f"no key was given; nothing is stored. With a pipe: echo $KEY | retinue login {provider}")
    return key


def run_logout(options: Options) -> int:
    """Remove a key, or say which providers have one."""
    keys = StoredKeys()
    if not options.words:
        stored = ", ".join(keys.list_stored())
        if stored:
            raise UsageError(f"which provider? retinue logout NAME; {keys.path} has entries for: {stored}")
        sys.stdout.write(f"{keys.path} has no entries\n")
        return 0
    provider = keys.remove(options.words[0])
    sys.stdout.write(f"{provider}: its entry in {keys.path} is removed\n")
    if source := keys.find_source(provider):
        say(f"{provider} still has a key: {source}")
    return 0
