import re

import pytest

from retinue.models.offline.languages import CodeLine, define_pattern, is_test, is_vendored, read_line, weigh_path


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("a.py", "async def fetch(url):", CodeLine("definition", "function", "fetch")),
        ("a.py", "    def close(self) -> None:", CodeLine("definition", "method", "close")),
        ("a.py", "LIMIT: int = 5", CodeLine("definition", "constant", "LIMIT")),
        ("a.py", "    timeout: float = 3.0", CodeLine("definition", "field", "timeout")),
        ("a.py", "        call(timeout=3.0)", CodeLine("code")),
        ("a.py", "from a import b", CodeLine("import")),
        ("a.ts", "export async function* walk<T>(", CodeLine("definition", "function", "walk")),
        ("a.ts", "  private async send(message: string) {", CodeLine("definition", "method", "send")),
        ("a.ts", "export const load = async (path) => {", CodeLine("definition", "function", "load")),
        ("a.js", "module.exports.Pool = Pool", CodeLine("definition", "export", "Pool")),
        ("a.js", "  if (ready) {", CodeLine("code")),
        ("a.go", "func (s *Server) Listen(addr string) error {", CodeLine("definition", "method", "Listen")),
        ("a.rs", "    pub(crate) async fn poll(&self) {", CodeLine("definition", "function", "poll")),
        ("a.rs", "pub mod wire;", CodeLine("import")),
        ("a.java", "    public static String join(List<String> parts) {", CodeLine("definition", "method", "join")),
        ("a.c", "static int read_line(struct buf *b, char *out) {", CodeLine("definition", "function", "read_line")),
        ("a.c", "#define MAX_LINE 4096", CodeLine("definition", "macro", "MAX_LINE")),
        ("a.c", "}", CodeLine("end")),
        ("a.h", "} buf_t;", CodeLine("definition", "type", "buf_t")),
        ("a.rb", "  def self.build(name)", CodeLine("definition", "method", "build")),
        ("a.sh", "cleanup() {", CodeLine("definition", "function", "cleanup")),
        ("Makefile", "test: build", CodeLine("definition", "target", "test")),
        ("a.md", "## How it works", CodeLine("heading", "section", "How it works")),
        ("a.toml", "[tool.ruff]", CodeLine("key", "setting", "tool.ruff")),
        ("a.py", "# def gone(): pass", CodeLine("comment")),
    ],
)
def test_lines_are_recognised(path, text, line):
    assert read_line(path, text) == line


@pytest.mark.parametrize(
    "text",
    [
        "def load_config(path):",
        "  class load_config {",
        "func (c *Config) load_config() error {",
        "pub fn load_config() -> Config {",
        "static int load_config(const char *path)",
        "load_config = make_loader()",
        "  async load_config(path) {",
        "load_config() {",
        "load_config: build",
        "## The load_config function",
        "#define load_config 1",
    ],
)
def test_definition_pattern_finds_definitions(text):
    assert re.search(define_pattern("load_config"), text)


@pytest.mark.parametrize("text", ["    x = load_config(path)", "    return load_config()", "import load_config"])
def test_definition_pattern_leaves_uses(text):
    assert not re.search(define_pattern("load_config"), text)


def test_source_outweighs_everything_else():
    paths = ["src/jar.py", "examples/jar.py", "tests/test_jar.py", "vendor/jar.py", "dist/jar.min.js"]

    assert paths == sorted(paths, key=weigh_path, reverse=True)
    assert [is_test(path) for path in paths] == [False, False, True, False, False]
    assert [is_vendored(path) for path in paths] == [False, False, False, True, True]
