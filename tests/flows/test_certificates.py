import json
import shutil
import subprocess
import sys

import pytest

ASK = """
import asyncio, json, os, ssl, sys
from retinue.core.model import ModelInfo
from retinue.models.failures import ProviderError
from retinue.models.transport import HttpCall, Timing, Transport

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\n\\r\\n[safe]")
    writer.close()

class Sink:
    take = None
    class draft:
        on_begin = None
    def take_whole(body):
        assert body == b"[safe]"

async def main(folder):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}/"
    info = ModelInfo(provider="mock", id="mock", api="openai-completions", base_url=url)
    transport = Transport()
    try:
        await transport.stream(HttpCall(info, url, {}, b"", Timing()), Sink)
        return "safe"
    except ProviderError as error:
        return str(error.failure)
    finally:
        await transport.close()
        server.close()

print(json.dumps(asyncio.run(main(sys.argv[1]))))
"""
LATE = """
import json, ssl
from retinue.models.certificates import import_aiohttp
import_aiohttp()
import aiohttp.connector
contexts = [value for value in vars(aiohttp.connector).values() if isinstance(value, ssl.SSLContext)]
late = [type(context) is not ssl.SSLContext for context in contexts]
made = ssl.create_default_context().cert_store_stats()
print(json.dumps([late, made, [context.cert_store_stats() for context in contexts]]))
"""

PLAIN = """
import asyncio, json, ssl
from retinue.core.model import ModelInfo
from retinue.models.failures import ProviderError
from retinue.models.transport import HttpCall, Timing, Transport

async def main():
    transport = Transport()
    info = ModelInfo(provider="mock", id="mock", api="openai-completions", base_url="http://127.0.0.1:1")
    try:
        await transport.stream(HttpCall(info, "http://127.0.0.1:1/", {}, b"", Timing()), None)
    except ProviderError:
        await transport.close()

asyncio.run(main())
import aiohttp.connector
contexts = [value for value in vars(aiohttp.connector).values() if isinstance(value, ssl.SSLContext)]
print(json.dumps([type(context) is not ssl.SSLContext for context in contexts]))
"""


@pytest.fixture
def certificate(tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    name = "-subj /CN=localhost -addext subjectAltName=DNS:localhost"
    command = f"openssl req {kind} {name} -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    return tmp_path


def run_python(source, *arguments, **environment):
    command = [sys.executable, "-c", source, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_server_with_a_known_certificate_is_trusted(certificate):
    assert run_python(ASK, certificate, SSL_CERT_FILE=str(certificate / "cert.pem")) == "safe"


def test_server_with_an_unknown_certificate_is_refused(certificate):
    assert "certificate verify failed" in run_python(ASK, certificate)


def test_contexts_of_aiohttp_read_certificates_when_used(certificate):
    late, made, read = run_python(LATE, SSL_CERT_FILE=str(certificate / "cert.pem"))
    assert (late, read) == ([True, True], [made, made])
    assert made["x509"] > 0


def test_plain_request_reads_no_certificates():
    assert run_python(PLAIN) == [True, True]
