"""An MCP server and its authorization server on loopback, and a user who signs in with `retinue login`."""

import asyncio
import base64
import hashlib
import json
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from urllib.parse import parse_qs, urlencode, urlsplit

from aiohttp import web

from retinue.testing.process import CliResult, open_cli

TOOLS = [{"name": "hi", "description": "Says it.", "inputSchema": {"type": "object"}}]
CALL = [{"calls": [{"name": "mcp__site__hi", "arguments": {}}]}, {"text": "done"}]


class LoginSite:
    """`answers` replaces the answer to a path: a function of the request and of the usual answer."""

    def __init__(self) -> None:
        self.answers = {}
        self.seen = []
        """Method, path and Authorization header of each request."""
        self.forms = []
        self.number = 0
        self.expires_s = 3600
        self.good = set()
        """The tokens that the server accepts."""
        self.renewal = ""
        self.scope = "read"
        self.codes = {}
        self.method = ""
        """Of the last message that the server accepted."""

    @contextmanager
    def open(self):
        loop, ready = asyncio.new_event_loop(), threading.Event()

        async def serve() -> None:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", self.answer)
            self._runner = web.AppRunner(app, shutdown_timeout=0.1)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", 0).start()
            self.origin = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
            ready.set()

        def run() -> None:
            loop.run_until_complete(serve())
            loop.run_forever()
            loop.run_until_complete(self._runner.cleanup())
            loop.close()

        thread = threading.Thread(target=run)
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.method, request.path, request.headers.get("Authorization", "")))
        maker = {
            "/.well-known/oauth-protected-resource/mcp": self._describe_resource,
            "/.well-known/oauth-authorization-server": self._describe_server,
            "/register": self._register,
            "/authorize": self._authorize,
            "/token": self._give_token,
            "/mcp": self._serve,
        }.get(request.path)
        usual = web.Response(status=404) if maker is None else await maker(request)
        change = self.answers.get(request.path)
        return usual if change is None else change(request, usual)

    async def _describe_resource(self, request):
        return web.json_response({"resource": self.url, "authorization_servers": [self.origin]})

    async def _describe_server(self, request):
        places = {f"{name}_endpoint": f"{self.origin}/{path}" for name, path in PLACES.items()}
        iss = {"authorization_response_iss_parameter_supported": True}
        return web.json_response({"issuer": self.origin, **places, "code_challenge_methods_supported": ["S256"], **iss})

    async def _register(self, request):
        asked = await request.json()
        self.forms.append(asked)
        given = {"client_id": "client-1", "token_endpoint_auth_method": "none", "redirect_uris": asked["redirect_uris"]}
        return web.json_response(given, status=201)

    async def _authorize(self, request):
        query = request.query
        self.codes["code-1"] = query["code_challenge"]
        self.scope = query.get("scope", self.scope)
        answer = urlencode({"code": "code-1", "state": query["state"], "iss": self.origin})
        return redirect(f"{query['redirect_uri']}?{answer}", 302)

    async def _give_token(self, request):
        form = dict(await request.post())
        self.forms.append(form)
        if form["grant_type"] == "authorization_code":
            proof = base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest())
            is_good = self.codes.pop(form["code"], None) == proof.decode().rstrip("=")
        else:
            is_good = form["refresh_token"] == self.renewal
        if not is_good:
            return web.json_response({"error": "invalid_grant", "error_description": "SECRET-echo"}, status=400)
        self.number += 1
        self.good = {f"access-{self.number}"}
        self.renewal = f"refresh-{self.number}"
        tokens = {"access_token": f"access-{self.number}", "refresh_token": self.renewal, "token_type": "Bearer"}
        return web.json_response({**tokens, "expires_in": self.expires_s, "scope": self.scope})

    async def _serve(self, request):
        if request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.good:
            where = f"{self.origin}/.well-known/oauth-protected-resource/mcp"
            return web.Response(status=401, headers={"WWW-Authenticate": f'Bearer resource_metadata="{where}"'})
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        self.method = message["method"]
        if "id" not in message:
            return web.Response(status=202)
        info = {"serverInfo": {"name": "site", "version": "1"}, "capabilities": {"tools": {}}}
        results = {
            "initialize": {"protocolVersion": "2025-06-18", **info},
            "tools/list": {"tools": TOOLS},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }
        if (result := results.get(message["method"])) is None:
            error = {"code": -32601, "message": "no such method"}
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": result})


PLACES = {"authorization": "authorize", "token": "token", "registration": "register"}


def redirect(url: str, status: int = 307) -> web.Response:
    return web.Response(status=status, headers={"Location": url})


def configure(place, site, **fields) -> None:
    entry = {"url": site.url, **fields}
    (place.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"site": entry}}))


def browse(url: str) -> int:
    """Open a page as a browser does; returns the status of the last one."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def log_in(place, *args, visit=browse) -> CliResult:
    """Run `retinue login mcp:site`; `visit` gets the address of the page that it shows."""
    with open_cli(["login", "mcp:site", *args], place.work, home=place.home) as process:
        shown = []
        for line in process.stderr:
            shown.append(line.decode())
            if line.startswith(b"http"):
                visit(line.decode().strip())
        out, _ = process.communicate(timeout=20)
        return CliResult(process.returncode, out.decode(), "".join(shown))


def stored(place):
    path = place.agent_dir / "auth.json"
    return json.loads(path.read_text()).get("mcp:site") if path.exists() else None


def read_query(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
