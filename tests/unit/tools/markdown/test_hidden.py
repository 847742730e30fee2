import time

import pytest

from bench.web import make_page
from retinue.tools.markdown.html import to_markdown

OFF = "<div {}>EVIL <b>EVIL</b><div>EVIL</div></div>"
STYLES = (
    *("display:none", "DISPLAY : NONE !important", "color:red;display:none", "display:block;display:none"),
    *("display:/**/none", r"d\69 splay:none", "display&#58;none", "visibility:hidden", "visibility: collapse"),
    *("opacity:0", "opacity:0%", "opacity:.0", "font-size:0", "font-size:0px", "font-size: 0.5px", "font-size:1%"),
    *("color:transparent", "color:rgba(0,0,0,0)", "color:#fff;background:#fff", "color:white;background-color:WHITE"),
    *("height:0;overflow:hidden", "max-height:0px;overflow:hidden", "width:1px;height:1px;overflow:hidden"),
    *("position:absolute;left:-9999px", "position:fixed;top:-5000px", "text-indent:-9999px", "transform:scale(0)"),
    *("position:absolute;clip:rect(0 0 0 0)", "clip:rect(1px, 1px, 1px, 1px)", "clip-path:inset(100%)"),
)
SEEN = (
    *(
        "display:block",
        "opacity:0.9",
        "font-size:10px",
        "color:#fff",
        "height:0",
        "left:-9999px",
        "color:#fff;background:#000",
    ),
    *(
        "text-indent:-2em",
        "clip-path:inset(0)",
        "opacity:0;transform:translateY(20px)",
        "transform:scale(1)",
        "width:0.5em",
    ),
    *("", "display", "display:", ":none", "-x-display:none", "font-size:100%", "font-size:.8em", "margin-left:-9999px"),
)


@pytest.mark.attack("D15")
@pytest.mark.parametrize("style", STYLES)
def test_hidden_styles_are_left_out(style):
    off = OFF.format(f'style="{style}"')
    assert to_markdown(f"<p>a</p>{off}<p>b</p>").markdown == "a\n\nb"


@pytest.mark.parametrize("style", SEEN)
def test_other_styles_are_kept(style):
    assert to_markdown(f"<p>a</p><p style='{style}'>seen</p>").markdown == "a\n\nseen"


@pytest.mark.attack("D15")
@pytest.mark.parametrize(
    "attributes",
    [
        *("hidden", "hidden=''", "HIDDEN", "Hidden=hidden", "class=x hidden", "class=x\nhidden", "title='a>b' hidden"),
        *("title= '>' hidden", 'x=\'"\' title=">" hidden', "aria-hidden=true", "ARIA-HIDDEN='TRUE'", "/hidden"),
        *("STYLE=display:none", "style='display:none' style='display:block'", "data-x='<b>' hidden", "a=b' hidden"),
    ],
)
def test_hidden_attributes_are_found(attributes):
    assert to_markdown(f"a{OFF.format(attributes)}b").markdown == "ab"


@pytest.mark.parametrize(
    "attributes",
    [
        *("class=hidden", "title=hidden", "data-hidden", "aria-hidden=false", "hidden=until-found", "x='hidden'"),
        *("style='display:block' style='display:none'", "class='overflow-hidden'", "data-style='display:none'"),
    ],
)
def test_seen_attributes_are_kept(attributes):
    assert to_markdown(f"<p {attributes}>seen</p>").markdown == "seen"


@pytest.mark.attack("D15")
@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<div hidden>EVIL", ""),
        ("a<div hidden>EVIL</section>EVIL</div>b", "ab"),
        ("<section>a<div hidden>EVIL</section>b", "a\n\nb"),
        ("a<span hidden>EVIL<div>EVIL</span>EVIL</div>EVIL</span>b", "ab"),
        ("a<div hidden><a title='</div>'>EVIL</a></div>b", "ab"),
        ("a<div hidden><a title=\"</div>\">EVIL</a><!-- </div> -->EVIL<script>'</div>'</script>EVIL</div>b", "ab"),
        ("a<div hidden>EVIL</DIV >b", "ab"),
        ("<p hidden>EVIL<p>a", "a"),
        ("<p hidden>EVIL<b>EVIL<div>a</div>", "a"),
        ("<div>a<p hidden>EVIL</div>b", "a\n\nb"),
        ("<ul><li hidden>EVIL<li>a<li hidden>EVIL<ul><li>EVIL</ul>EVIL</ul>b", "- a\n\nb"),
        (
            "<table><tr><td>a<td hidden>EVIL<td>b<tr hidden><td>EVIL<td>EVIL<tr><td>c<td>d</table>",
            "| a | b |\n| --- | --- |\n| c | d |",
        ),
        ("<dl><dt>a<dd hidden>EVIL<dt>b</dl>", "a\n\nb"),
        ("a<img hidden alt=EVIL src=x><br hidden>b<input hidden value=EVIL>c", "abc"),
        ("a<x-card hidden>EVIL</x-card>b", "ab"),
        ("a<!-- EVIL --><!-- EVIL\n<b>EVIL</b> > -->b<!-- EVIL", "ab"),
        ("a<template>EVIL<p>EVIL", "a"),
        ("a<noscript>EVIL</p></noscript>b<iframe>EVIL</iframe>c<dialog>EVIL</dialog>d", "abcd"),
        ("a<template><i title='</template>'>EVIL</i></template>b<nav>never closed", "abnever closed"),
        ("a<video>EVIL</video><audio>EVIL</audio>b<progress>EVIL</progress><meter>EVIL</meter>c", "abc"),
        ("a<datalist><option>EVIL</datalist>b<ruby>c<rp>EVIL</rp></ruby>", "abc"),
        ("a<script><!--<script></script>EVIL</script>b<script><!-- x --></script>c<script><!--</script>d", "abcd"),
        ("a<a href='javascript:EVIL' title='EVIL' aria-label='EVIL'>b</a><img src='data:EVIL' title='EVIL'>c", "abc"),
        ("a<abbr title='EVIL'>b</abbr><textarea>EVIL</textarea><noframes>EVIL</noframes><xmp>EVIL</xmp>c", "abc"),
        ("<html hidden><body style='display:none'>a</body></html>", "a"),
        ("a<svg hidden><text>EVIL</text></svg>b<a hidden href=x>EVIL</a>c<b hidden>EVIL</b>d", "abcd"),
        ("<details><summary>a</summary>b</details>", "a\n\nb"),
    ],
)
def test_hidden_elements_end_where_browsers_end_them(html, markdown):
    assert to_markdown(html).markdown == markdown


@pytest.mark.attack("D15")
@pytest.mark.parametrize(
    ("css", "element", "is_seen"),
    [
        (".x{display:none}", "<p class='a x'>T</p>", False),
        ("p.x, #y { color: red; font-size: 0 }", "<p id=y>T</p>", False),
        ("/* { */ .x{display:none}", "<p class=x>T</p>", False),
        (".x{display:none} .x.open{display:block}", "<p class=x>T</p>", True),
        ("@media print{.x{display:none}}", "<p class=x>T</p>", True),
        (".x .y{display:none}", "<p class=x>T</p>", True),
        (".x:hover{display:none}", "<p class=x>T</p>", True),
        (".x{color:red", "<p class=x>T</p>", True),
        (".xy{display:none}", "<p class=x>T</p>", True),
    ],
)
def test_styles_of_the_page_hide(css, element, is_seen):
    assert ("T" in to_markdown(f"<style>{css}</style>a{element}").markdown) is is_seen


@pytest.mark.parametrize(
    "piece",
    ["<div hidden>", "<p hidden>x", "<p style='", '<a hidden title="', "<i hidden></b>", "<u hidden><i><div></u>"],
)
def test_hostile_hiding_takes_no_longer(piece):
    def take(size):
        begun_s = time.process_time()
        to_markdown((piece * (size // len(piece) + 1))[:size])
        return time.process_time() - begun_s

    small, large = min(take(30_000) for _ in range(3)), take(240_000)
    assert large < max(small * 40, 0.5)


def test_pages_lose_nothing_else():
    page = make_page(100_000)
    hidden = page.replace("<ul class", "<div style='display:none'>EVIL<p>EVIL</div><ul class")
    assert (hidden.count("EVIL") > 100, to_markdown(hidden) == to_markdown(page)) == (True, True)
