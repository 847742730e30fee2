from retinue.models.offline.evidence import Excerpt, Findings
from retinue.models.offline.manifest import ManifestFacts, collect_facts


def facts_of(path, text):
    return collect_facts(Findings(excerpts=[Excerpt(path, 1, tuple(text.split("\n")))]))


def test_pyproject_is_read_with_places():
    text = '[project]\nname = "jar"\ndescription = "Keeps."\nrequires-python = ">=3.11"\ndependencies = ["a>=1"]\n'

    assert facts_of("pyproject.toml", text + '[project.scripts]\njar = "jar.cli:main"') == ManifestFacts(
        name="jar",
        description="Keeps.",
        source="pyproject.toml:3",
        commands=[("jar", "jar.cli:main", "pyproject.toml:7")],
        dependencies=[("a>=1", "pyproject.toml:5")],
        facts=[("Python", ">=3.11", "pyproject.toml:4")],
    )


def test_a_cut_manifest_still_tells_its_name():
    text = '[project]\nname = "jar"\n[tool.x]\nvalues = [\n  "a",'

    assert facts_of("pyproject.toml", text) == ManifestFacts(name="jar")


def test_package_json_gives_scripts():
    text = '{\n "name": "jar",\n "scripts": {\n  "test": "vitest"\n }\n}'

    assert facts_of("package.json", text) == ManifestFacts(
        name="jar", scripts=[("npm run test", "vitest", "package.json:4")]
    )


def test_make_targets_carry_their_help():
    text = ".PHONY: test\ntest: build  ## run all tests\n\tpytest\nlint:\n\truff check\n%.o: %.c"

    assert facts_of("Makefile", text).scripts == [
        ("make test", "run all tests", "Makefile:2"),
        ("make lint", "ruff check", "Makefile:4"),
    ]
