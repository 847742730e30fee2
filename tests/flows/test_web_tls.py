import json
import os
import subprocess
import sys

import pytest

from tests.needs import need_program

FETCH = """
import asyncio, json, ssl, sys
from retinue.tools.outbound.client import HttpClient
from retinue.tools.outbound.request import RequestBounds, RequestFailed, RequestReach

async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\nsafe")
    writer.close()

async def resolve(host, port):
    return ["93.184.216.34"]

async def main(folder, host):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    place = ("127.0.0.1", server.sockets[0].getsockname()[1])
    client = HttpClient(RequestReach(), agent="test", resolve=resolve, locate=lambda address, port: place)
    try:
        return (await client.fetch(f"https://{host}/", RequestBounds())).body.decode()
    except RequestFailed as error:
        return str(error)
    finally:
        server.close()

print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
"""


@pytest.fixture
def certificate(tmp_path):
    need_program("openssl")
    kind = "-x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
    name = "-subj /CN=public.test -addext subjectAltName=DNS:public.test"
    command = f"openssl req {kind} {name} -keyout key.pem -out cert.pem"
    subprocess.run(command.split(), cwd=tmp_path, capture_output=True, check=True)
    return tmp_path


def fetch(certificate, host, **environment):
    command = [sys.executable, "-c", FETCH, str(certificate), host]
    done = subprocess.run(command, capture_output=True, check=True, env={**os.environ, **environment})
    return json.loads(done.stdout)


@pytest.mark.attack("D3")
def test_pinned_hosts_prove_their_name(certificate):
    known = {"SSL_CERT_FILE": str(certificate / "cert.pem")}
    assert fetch(certificate, "public.test", **known) == "safe"
    assert fetch(certificate, "other.test", **known).startswith("no secure connection to other.test:443")
    assert fetch(certificate, "public.test").startswith("no secure connection to public.test:443")
