"""Uses and renews the tokens of sign-ins to MCP servers.

The exchange of tokens is the MCP library's. This file decides which addresses a sign-in may reach, and keeps a token
with the URL it was given for. It never asks a person; `browser_login` does. Imports the MCP library, so it must be
imported only when a server is used.
"""

import asyncio
import ipaddress
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from retinue.core.errors import RetinueError
from retinue.core.pattern import late_pattern
from retinue.features.mcp.server import LoginStore, McpFailed, McpServer
from retinue.tools.outbound.guard import RequestGuard, is_metadata
from retinue.tools.outbound.request import RequestFailed, RequestReach
from retinue.tools.outbound.target import parse_target

EARLY_S = 30.0
"""A token is renewed this long before it expires."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
CHALLENGED = (401, 403)
_SCOPE = late_pattern(r'\bscope="([\x21\x23-\x5b\x5d-\x7e ]{1,1000})"')

Entry = dict[str, Any]
Flow = AsyncGenerator[httpx2.Request, httpx2.Response]


class Storage:
    """The library's view of one entry of auth.json."""

    def __init__(self, server: McpServer, store: LoginStore, learn: Callable[[str], None], entry: Entry) -> None:
        self._server = server
        self._store = store
        self._learn = learn
        self.entry = entry
        """Empty: a person signs in anew."""
        self.client: OAuthClientInformationFull | None = _read_client(server, entry)
        self.provider: OAuthClientProvider | None = None

    async def get_tokens(self) -> OAuthToken | None:
        entry = self.entry
        if not entry:
            return None
        return OAuthToken(access_token=entry["access"], refresh_token=entry.get("refresh"), scope=entry.get("scope"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        assert self.provider is not None
        context, client = self.provider.context, self.client
        metadata, expires_s = context.oauth_metadata, context.token_expiry_time
        written = {
            "type": "oauth",
            "server": self._server.url,
            "access": tokens.access_token,
            "refresh": tokens.refresh_token,
            "expires": None if expires_s is None else int(expires_s * 1000),
            "scope": tokens.scope,
            "clientId": client.client_id if client else None,
            "clientSecret": client.client_secret if client else None,
            "authMethod": client.token_endpoint_auth_method if client else None,
            "issuer": str(metadata.issuer) if metadata else None,
            "tokenEndpoint": str(metadata.token_endpoint) if metadata else None,
            "resource": context.get_resource_url() if context.protected_resource_metadata else None,
        }
        self.entry = {name: value for name, value in written.items() if value is not None}
        for secret in (tokens.access_token, tokens.refresh_token, client and client.client_secret):
            if secret:
                self._learn(secret)
        await asyncio.to_thread(self._store.store_login, self._server.name, self.entry)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


def _read_client(server: McpServer, entry: Entry) -> OAuthClientInformationFull | None:
    given = server.oauth
    if not entry and not given.client_id:
        return None
    method = "client_secret_basic" if given.client_secret else "none"
    values = {"clientId": given.client_id, "clientSecret": given.client_secret or None, "authMethod": method, **entry}
    return OAuthClientInformationFull(
        client_id=values["clientId"],
        client_secret=values.get("clientSecret"),
        token_endpoint_auth_method=values.get("authMethod"),
        issuer=entry.get("issuer"),
    )


class Reach:
    """Which addresses the sign-in to one server may use: a public server must not lead into a private network."""

    def __init__(self, server: McpServer) -> None:
        self._url = server.url
        self._is_local = urlsplit(server.url).hostname in LOOPBACK
        self._is_private: bool | None = None

    async def admit(self, url: str) -> None:
        """Raises McpFailed."""
        try:
            target = parse_target(url)
            if target.scheme != "https" and not (self._is_local and target.host in LOOPBACK):
                raise McpFailed(f"the sign-in leads to {show_host(url)}, which is not encrypted; expected https://")
            if self._is_private is None:
                self._is_private = self._is_local or not await self._is_public(self._url)
            guard = RequestGuard(RequestReach(private=self._is_private, switch="the server's own address is public"))
            found = await guard.admit(target)
        except RequestFailed as error:
            raise McpFailed(f"the sign-in leads to an address that is refused: {error}") from None
        if any(is_metadata(ipaddress.ip_address(text)) for text in found):
            raise McpFailed(f"the sign-in leads to {show_host(url)}, a service for the machines of a cloud")

    async def _is_public(self, url: str) -> bool:
        try:
            await RequestGuard(RequestReach()).admit(parse_target(url))
        except RequestFailed:
            return False
        return True


class StoredLogin(httpx2.Auth):
    """Adds the stored token to requests and renews it; a server that refuses it needs `retinue login`."""

    def __init__(
        self, server: McpServer, store: LoginStore, learn: Callable[[str], None], refuse: Callable[[str], None]
    ) -> None:
        """`refuse` receives why the connection must end."""
        self._server = server
        self._store = store
        self._learn = learn
        self._refuse = refuse
        self._reach = Reach(server)

    async def async_auth_flow(self, request: httpx2.Request) -> Flow:
        entry = await self._load()
        for is_again in (False, True):
            if entry and (is_again or _is_expired(entry)):
                renewal = self._renew(entry, request)
                try:
                    outgoing = await anext(renewal)
                    while True:
                        outgoing = await renewal.asend((yield outgoing))
                except StopAsyncIteration:
                    pass
                finally:
                    await renewal.aclose()
                fresh = await self._load()
                # A token that could not be renewed is not tried a second time.
                entry = fresh if fresh.get("access") != entry["access"] else {**entry, "refresh": None}
            if entry:
                request.headers["Authorization"] = f"Bearer {entry['access']}"
            response = yield request
            if response.status_code != 401 or not entry.get("refresh"):
                break
        if response.status_code in CHALLENGED:
            await self._explain(entry, response)

    async def _renew(self, old: Entry, request: httpx2.Request) -> Flow:
        """Renew the token, unless another process has done so: a token for renewal may be used once only."""
        lock = self._store.hold_login(self._server.name)
        await asyncio.to_thread(lock.__enter__)
        try:
            entry = await self._load()
            if entry.get("access") != old["access"] or not entry.get("refresh"):
                return
            flow = open_provider(self._server, Storage(self._server, self._store, self._learn, entry))
            flow.context.token_expiry_time = 1.0
            steps = flow.async_auth_flow(request)
            outgoing = await anext(steps)
            try:
                while outgoing is not request:
                    try:
                        await self._reach.admit(str(outgoing.url))
                    except McpFailed as error:
                        self._refuse(str(error))
                        raise
                    outgoing = await steps.asend((yield outgoing))
            finally:
                await steps.aclose()
        finally:
            await asyncio.to_thread(lock.__exit__, None, None, None)

    async def _load(self) -> Entry:
        try:
            entry = await asyncio.to_thread(self._store.load_login, self._server.name, self._server.url) or {}
        except RetinueError as error:
            self._refuse(str(error))
            raise
        for secret in (entry.get("access"), entry.get("refresh"), entry.get("clientSecret")):
            if secret:
                self._learn(secret)
        return entry

    async def _explain(self, entry: Entry, response: httpx2.Response) -> None:
        challenge, command = response.headers.get("WWW-Authenticate", ""), f"retinue login mcp:{self._server.name}"
        if entry and response.status_code == 403 and "insufficient_scope" in challenge:
            wanted = join_scopes(entry.get("scope"), find_scope(challenge))
            await asyncio.to_thread(self._store.store_login, self._server.name, {**entry, "wanted": wanted})
            text = f"the sign-in does not cover this; to sign in with more rights: {command}"
        else:
            what = "it no longer accepts the stored sign-in" if entry else "it requires a sign-in"
            text = f"{what}: {command}, or configure a header such as Authorization"
        self._refuse(f"{text} (HTTP {response.status_code})")


def open_provider(
    server: McpServer, storage: Storage, uri: str = "", send: Any = None, receive: Any = None
) -> OAuthClientProvider:
    metadata = OAuthClientMetadata.model_validate(
        {"client_name": server.oauth.client_name, "redirect_uris": [uri or "http://127.0.0.1/callback"]}
    )
    provider = OAuthClientProvider(server.url, metadata, storage, send, receive)
    storage.provider = provider
    entry = storage.entry
    if issuer := entry.get("issuer"):
        endpoint = entry["tokenEndpoint"]
        known = {"issuer": issuer, "authorization_endpoint": endpoint, "token_endpoint": endpoint}
        provider.context.oauth_metadata = OAuthMetadata.model_validate(known)
        if resource := entry.get("resource"):
            known = {"resource": resource, "authorization_servers": [issuer]}
            provider.context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(known)
    return provider


def _is_expired(entry: Entry) -> bool:
    expires_ms = entry.get("expires")
    return isinstance(expires_ms, int | float) and time.time() > expires_ms / 1000 - EARLY_S


def find_scope(challenge: str) -> str:
    found = _SCOPE.search(challenge)
    return found[1] if found else ""


def join_scopes(*scopes: str | None) -> str:
    return " ".join(dict.fromkeys(word for scope in scopes for word in (scope or "").split()))


def show_host(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}"[:200]
