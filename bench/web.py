"""The web tools: a page of one megabyte as markdown, and twenty fetches at once through a gate for three."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure
from retinue.core.tool import ToolContext
from retinue.tools.markdown.html import to_markdown
from retinue.tools.outbound.request import RequestReach
from retinue.tools.registry import build_family
from retinue.tools.web.options import WebOptions, WebPorts
from retinue.tools.web.session import WebSession

MEGABYTE = 1 << 20
FETCHES, AT_ONCE = 20, 3
ANSWER_S = 0.02
_SECTION = """
<section class="entry" id="entry-{n}"><h2><span class="headline">Entry {n}</span>
<span class="edit" aria-hidden="true">[<a href="/edit/{n}">edit</a>]</span></h2>
<div class="tip" style="display:none; margin: 0"><p>What nobody sees until it is wanted</p></div>
<p class="lead" style="margin: 0 0 1em 0">
The <a href="/wiki/Entry_{n}" title="Entry {n}">entry</a> is a <b>word</b> for something found in
many places, as <a href="/wiki/Other" class="redirect" title="Other">others</a> have shown at length, and as the reader
of such pages knows better than who writes about them.<sup class="reference"><a href="#note-{n}">[{n}]</a></sup> It was
described in 1921 &amp; named two years later, when nobody thought any more of what it had once been good for.</p>
<script>window.entries = window.entries || [];
window.entries.push({{"id": {n}, "kind": "entry", "seen": false}});</script>
<ul class="links"><li><a href="/wiki/List_{n}">A list of such entries</a> with some remarks</li>
<li>Another remark</li></ul>
<table class="facts"><tr><th>Name</th><th>Value</th></tr><tr><td>one</td><td>{n}.5</td></tr></table></section>
"""


def make_page(size: int = MEGABYTE) -> str:
    """A page as encyclopedias have them: text, links, notes, lists, tables, scripts, and what is hidden."""
    css = "p { margin: 0 } .tip { color: red } .off { display: none }"
    parts = [f"<!doctype html><html><head><title>Entries</title><style>{css}</style></head><body>"]
    length = 0
    while length < size:
        parts.append(_SECTION.format(n=len(parts)))
        length += len(parts[-1])
    return "".join(parts)[:size]


def measure() -> Iterator[Figure]:
    """Both."""
    page = make_page()
    times, computing = [], []
    for _ in range(9):
        # Nothing is waited for: what other processes take from us is not its time.
        begun_s, used_s = time.perf_counter(), time.process_time()
        found = to_markdown(page, "https://example.org/")
        times.append((time.perf_counter() - begun_s) * 1000)
        computing.append((time.process_time() - used_s) * 1000)
    assert found.title == "Entries" and len(found.markdown) > MEGABYTE // 4
    note = (
        f"{page.count('<')} tags, {page.count('display:none') * 2} elements hidden; computing, best of {len(times)}; "
    )
    note += f"median by the clock {statistics.median(times):.0f} ms"
    yield Figure("HTML of 1 MB to markdown", min(computing), "ms", 150, note)
    with tempfile.TemporaryDirectory(prefix="retinue-bench-") as folder:
        most, took_s = asyncio.run(fetch_all(Path(folder)))
    note = f"web.concurrency.maxConcurrent is {AT_ONCE}; each answer takes {ANSWER_S * 1000:.0f} ms"
    yield Figure(f"{FETCHES} parallel fetches, most at once", most, "", AT_ONCE, note)
    ideal_s = ANSWER_S * -(-FETCHES // AT_ONCE)
    yield Figure(f"{FETCHES} parallel fetches, over the ideal", took_s / ideal_s, "×", None, f"{took_s * 1000:.0f} ms")


async def fetch_all(folder: Path) -> tuple[int, float]:
    """The most connections at once that a server saw, and how long it all took."""
    busy = most = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal busy, most
        busy += 1
        most = max(most, busy)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(ANSWER_S)
        busy -= 1
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = WebOptions(max_concurrent=AT_ONCE, max_waiting=FETCHES, reach=RequestReach(private=True))
    tool = build_family("web", WebSession(options, WebPorts()))["fetch_content"]
    context = ToolContext(folder)
    await tool.call({"url": f"http://127.0.0.1:{port}/warm"}, context)
    most = 0
    begun_s = time.perf_counter()
    results = await asyncio.gather(
        *(tool.call({"url": f"http://127.0.0.1:{port}/{number}"}, context) for number in range(FETCHES))
    )
    took_s = time.perf_counter() - begun_s
    assert not any(result.is_error for result in results)
    server.close()
    return most, took_s
