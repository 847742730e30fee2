import random
import time

import pytest

from retinue.tools.markdown.html import to_markdown


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<h2>A <em>b</em></h2><p>c<p>d", "## A *b*\n\nc\n\nd"),
        ("a <b> bold </b>b <code>x&lt;y</code>", "a **bold** b `x<y`"),
        ("<ul><li>one<li>two<ul><li>deep</ul></ul>", "- one\n- two\n  - deep"),
        ("<ol><li>one</li><li>two</li></ol>after", "1. one\n2. two\n\nafter"),
        ("<blockquote><p>said</p></blockquote>", "> said"),
        ("<pre><code class='language-py'>if a &lt; b:\n    c</code></pre>", "```py\nif a < b:\n    c\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<table><tr><th>a<th>b<tr><td>1|2<td>x<br>y</table>", "| a | b |\n| --- | --- |\n| 1\\|2 | x y |"),
        ("<table><tr><td>only</td></tr></table>", "only"),
        ("<a href='/x?a=1&amp;b=2'>t</a>", "[t](https://e.org/x?a=1&b=2)"),
        ("<a href=\"y\" title='a > b'>t</a>", "[t](https://e.org/d/y)"),
        ('<a title="a > b <i>" href="y">t</a> u', "[t](https://e.org/d/y) u"),
        ("<a href='#x'>t</a> <a href='javascript:alert()'>u</a> <a href='data:x'>v</a>", "t u v"),
        ("<img src='p.png' alt='a pic'><img src='q.png'>", "![a pic](https://e.org/d/p.png)"),
        ("<script>if (a<b) x='</p>'</script>a<style>b</style><!-- <p>c</p> -->d", "ad"),
        ("<nav>skip <b>me</b></nav>keep<svg><text>no</text></svg>", "keep"),
        ("<nav>never closed", "never closed"),
        ("1 < 2 && 3 > 2 &amp; <3", "1 < 2 && 3 > 2 & <3"),
        ("<P>UPPER</P><HR><Br>x", "UPPER\n\n---\n\nx"),
        ("a<br/>b", "a\n\nb"),
        ("", ""),
        ("<", "<"),
        ("<!--", ""),
    ],
)
def test_html_becomes_markdown(html, markdown):
    assert to_markdown(html, "https://e.org/d/f").markdown == markdown


def test_title_and_scripts_are_told():
    page = to_markdown("<head><title> A &amp;\n B </title><script>x</script></head><SCRIPT src=a></SCRIPT>text")
    assert page == ("A & B", "text", 2)


def test_base_moves_links():
    html = "<base href='https://other.org/x/'><a href='y'>t</a>"
    assert to_markdown(html, "https://e.org/").markdown == "[t](https://other.org/x/y)"


@pytest.mark.parametrize(
    "piece",
    ["<!--", "<a ", '<a "', "<b>", "<nav>", "<script>", "<", "&", "<table><tr><td>", "<ul><li>x", "<a href='x' "],
)
def test_hostile_pages_take_no_longer(piece):
    def take(size):
        begun_s = time.process_time()
        to_markdown((piece * (size // len(piece) + 1))[:size])
        return time.process_time() - begun_s

    small, large = min(take(30_000) for _ in range(3)), take(240_000)
    assert large < max(small * 40, 0.5)


def test_random_pages_never_fail():
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    parts = [
        "<p>",
        "</p>",
        "<a href='",
        "'>",
        '"',
        "</a>",
        "<table>",
        "<td>",
        "<tr>",
        "</table>",
        "<pre>",
        "</pre>",
        "<li>",
    ]
    parts += [
        "</ul>",
        "<ol>",
        "<b>",
        "</b>",
        "x",
        " ",
        "\n",
        "&",
        "&#x110000;",
        "<!--",
        "-->",
        "<script>",
        "</script>",
        "<",
        ">",
    ]
    for _ in range(300):
        to_markdown("".join(chance.choices(parts, k=60)), "https://e.org/")
