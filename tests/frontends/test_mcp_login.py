"""`retinue login mcp:NAME`: the sign-in to an MCP server, with a server and a browser on loopback."""

import json
import stat

import pytest
from aiohttp import web

from tests.frontends.login_world import CALL, LoginSite, browse, configure, log_in, read_query, redirect, stored


@pytest.fixture
def site():
    with LoginSite().open() as site:
        yield site


def test_sign_in_is_used_from_then_on(place, site):
    configure(place, site)
    before = place.run("-p", "greet", replies=CALL)
    assert "MCP server 'site': it requires a sign-in: retinue login mcp:site" in before.stderr
    assert [path for _, path, _ in site.seen] == ["/mcp"] * len(site.seen), "a run without a sign-in asks nobody else"
    done = log_in(place)
    path = place.agent_dir / "auth.json"
    assert (done.status, done.stdout) == (0, f"mcp:site: signed in; the tokens are stored in {path}\n"), done.stderr
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    registered, token = site.forms
    assert registered["client_name"] == "retinue" and token["resource"] == site.url
    after = place.run("-p", "greet", replies=CALL)
    assert (after.status, after.stderr) == (0, "")
    assert "hello" in place.sessions()[-1].read_text() and "access-1" not in place.sessions()[-1].read_text()
    assert place.run("logout", "mcp:site").status == 0 and stored(place) is None


def test_expired_token_is_renewed_once(place, site):
    site.expires_s = 1
    configure(place, site)
    log_in(place)
    site.expires_s = 3600
    assert place.run("-p", "greet", replies=CALL).stderr == ""
    assert [form["grant_type"] for form in site.forms[1:]] == ["authorization_code", "refresh_token"]
    assert (stored(place)["access"], stored(place)["refresh"]) == ("access-2", "refresh-2")


def test_token_that_was_withdrawn_is_renewed_or_told(place, site):
    configure(place, site)
    log_in(place)
    site.good = set()
    assert place.run("-p", "greet", replies=CALL).stderr == ""
    site.good, site.renewal = set(), "other"
    done = place.run("-p", "greet", replies=CALL)
    assert "it no longer accepts the stored sign-in: retinue login mcp:site" in done.stderr
    assert "refresh-2" not in done.stderr and "SECRET" not in done.stderr


def test_more_rights_are_asked_for_at_the_next_sign_in(place, site):
    def limit(request, usual):
        if usual.status == 401 or site.method != "tools/call" or "write" in site.scope:
            return usual
        challenge = 'Bearer error="insufficient_scope", scope="write"'
        return web.Response(status=403, headers={"WWW-Authenticate": challenge})

    site.answers["/mcp"] = limit
    configure(place, site)
    log_in(place)
    place.run("-p", "greet", replies=CALL)
    assert "to sign in with more rights: retinue login mcp:site" in place.sessions()[-1].read_text()
    log_in(place)
    assert stored(place)["scope"] == "read write"
    assert place.run("-p", "greet", replies=CALL).stderr == ""


@pytest.mark.parametrize("field", ["url", "name"])
def test_token_stays_with_its_server(place, site, field):
    configure(place, site)
    log_in(place)
    with LoginSite().open() as other:
        url, name = (other.url, "site") if field == "url" else (site.url, "mine")
        entry = {"mcpServers": {name: {"url": url}}}
        (place.agent_dir / "mcp.json").write_text(json.dumps(entry))
        site.seen.clear()
        done = place.run("-p", "greet", replies=CALL)
        assert f"retinue login mcp:{name}" in done.stderr
        assert {header for _, _, header in (*site.seen, *other.seen)} == {""}


def test_project_cannot_use_the_users_sign_in_elsewhere(place, site):
    configure(place, site)
    log_in(place)
    with LoginSite().open() as other:
        folder = place.work / ".pi"
        folder.mkdir()
        (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"site": {"url": other.url}}}))
        done = place.run("-p", "greet", "--approve", replies=CALL)
        assert other.seen == [] and "hello" in place.sessions()[-1].read_text(), done.stderr


def test_token_does_not_follow_a_redirect(place, site):
    configure(place, site)
    log_in(place)
    with LoginSite().open() as other:
        site.answers["/mcp"] = lambda request, usual: redirect(other.url)
        place.run("-p", "greet", replies=CALL)
        assert other.seen == []


def test_answer_without_the_state_changes_nothing(place, site):
    statuses = []

    def visit(url):
        back = read_query(url)["redirect_uri"]
        for query in ("code=stolen&state=guess", "code=stolen", "error=access_denied", "code=a&state=%ff"):
            statuses.append(browse(f"{back}?{query}"))
        statuses.append(browse(back.replace("127.0.0.1", "localhost")))
        statuses.append(browse(url))

    configure(place, site)
    assert log_in(place, visit=visit).status == 0
    assert statuses == [400, 400, 400, 400, 404, 200] and stored(place)["access"] == "access-1"


def change(**fields):
    """Change an answer in JSON; `{}` stands for the server's own address, `[]` for that of another."""

    def answer(request, usual):
        return web.json_response({**json.loads(usual.text), **fields}, status=usual.status)

    return answer


def refuse(request, usual):
    return web.json_response({"error": "invalid_client", "error_description": "SECRET-echo"}, status=400)


def visit_denied(url):
    query = read_query(url)
    browse(f"{query['redirect_uri']}?error=access_denied&error_description=SECRET-echo&state={query['state']}")


def visit_mixed_up(url):
    query = read_query(url)
    browse(f"{query['redirect_uri']}?code=code-1&state={query['state']}&iss=https://evil.example")


SERVER = "/.well-known/oauth-authorization-server"
RESOURCE = "/.well-known/oauth-protected-resource/mcp"
FAULTS = {
    "metadata-address": (RESOURCE, change(authorization_servers=["http://169.254.169.254"]), "is not encrypted"),
    "metadata-address-https": (
        RESOURCE,
        change(authorization_servers=["https://169.254.169.254"]),
        "https://169.254.169.254, a service for the machines of a cloud",
    ),
    "private-address": (RESOURCE, change(authorization_servers=["http://10.0.0.1"]), "is not encrypted"),
    "other-resource": (RESOURCE, change(resource="http://127.0.0.1:1/mcp"), "its metadata describes another server"),
    "other-issuer": (SERVER, change(issuer="http://127.0.0.1:1"), "another authorization server"),
    "token-elsewhere": (
        SERVER,
        change(token_endpoint="http://10.0.0.1/token"),
        "http://10.0.0.1, which is not encrypted",
    ),
    "page-elsewhere": (
        SERVER,
        change(authorization_endpoint="http://192.168.0.1/"),
        "http://192.168.0.1, which is not",
    ),
    "no-pkce": (SERVER, change(code_challenge_methods_supported=["plain"]), "does not support PKCE"),
    "no-registration": ("/register", refuse, "does not register retinue; configure oauth.clientId (invalid_client"),
    "no-token": ("/token", refuse, "gave no token (invalid_client, HTTP 400)"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_server_gets_nothing(place, site, fault):
    path, answer, text = FAULTS[fault]
    site.answers[path] = answer
    configure(place, site)
    done = log_in(place)
    assert (done.status, stored(place)) == (1, None)
    assert text in done.stderr and done.stderr.endswith("nothing is stored\n"), done.stderr
    assert "SECRET" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("visit", "text"),
    [(visit_denied, "the sign-in was refused: access_denied"), (visit_mixed_up, "another authorization server")],
)
def test_sign_in_that_fails_in_the_browser(place, site, visit, text):
    configure(place, site)
    done = log_in(place, visit=visit)
    assert (done.status, stored(place), text in done.stderr) == (1, None, True), done.stderr
    assert "SECRET" not in done.stderr and "/token" not in {path for _, path, _ in site.seen}


def test_token_request_does_not_follow_a_redirect(place, site):
    with LoginSite().open() as other:
        site.answers["/token"] = lambda request, usual: redirect(f"{other.origin}/token")
        configure(place, site)
        assert log_in(place).status == 1 and other.seen == []


def test_headers_of_the_entry_stay_with_the_server(place, site):
    seen = {}

    def note(request, usual):
        seen.setdefault(request.path, set()).add(request.headers.get("X-Key"))
        return usual

    site.answers = {path: note for path in ("/mcp", "/register", "/token", SERVER, RESOURCE)}
    configure(place, site, headers={"X-Key": "secret"})
    assert log_in(place).status == 0
    assert seen.pop("/mcp") == {"secret"} and set.union(*seen.values()) == {None}


def test_registered_client_is_used(place, site):
    configure(place, site, oauth={"clientId": "known", "clientSecret": "${CLIENT_SECRET:-shh}", "scope": "more"})
    assert log_in(place).status == 0
    assert "/register" not in {path for _, path, _ in site.seen}
    assert ("POST", "/token", "Basic a25vd246c2ho") in site.seen and "more" in site.scope
    assert "shh" not in place.run("doctor").stdout


@pytest.mark.parametrize(
    ("entry", "name", "text"),
    [
        ({"url": "http://127.0.0.1:1/mcp"}, "mcp:sit", "there is no MCP server 'sit' (did you mean 'site'?)"),
        ({"command": "true"}, "mcp:site", "runs on this machine, so there is nothing to sign in to"),
        (
            {"url": "http://127.0.0.1:1/mcp", "headers": {"authorization": "x"}},
            "mcp:site",
            "has an Authorization header in its entry",
        ),
        ({"url": "http://127.0.0.1:1/mcp", "enabled": False}, "mcp:site", "'site' is disabled"),
    ],
)
def test_mistakes_are_explained(place, entry, name, text):
    (place.agent_dir / "mcp.json").write_text(json.dumps({"mcpServers": {"site": entry}}))
    done = place.run("login", name)
    assert (done.status, text in done.stderr, stored(place)) == (2, True, None), done.stderr


def test_server_without_a_sign_in_is_told(place, site):
    site.good = {""}
    configure(place, site)
    assert log_in(place).stdout == "mcp:site: asks for no sign-in; nothing is stored\n"


def test_two_processes_renew_a_token_once(place, site):
    configure(place, site)
    log_in(place)
    entry = stored(place)
    (place.agent_dir / "auth.json").write_text(json.dumps({"mcp:site": {**entry, "expires": 1}}))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        done = [*pool.map(lambda _: place.run("-p", "greet", replies=CALL), range(2))]
    assert [each.stderr for each in done] == ["", ""]
    assert [form.get("grant_type") for form in site.forms[1:]] == ["authorization_code", "refresh_token"]
