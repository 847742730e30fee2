import pytest

from retinue.settings.devkit import KeyedProvider, WebSettings
from retinue.settings.subagents import SubagentsConfig
from retinue.settings.web import export_search_keys

ENVIRONMENT = {"A_KEY": "a", "B_KEY": "b", "C_KEY": "", "PATH": "/bin"}
BRAVE, SERPER = KeyedProvider(True, "https://b.test/", "A_KEY"), KeyedProvider(True, "https://s.test/", "B_KEY")
OFF, EMPTY = KeyedProvider(False, "https://t.test/", "B_KEY"), KeyedProvider(True, "https://t.test/", "C_KEY")


@pytest.mark.parametrize(
    ("web", "tools", "names"),
    [
        (WebSettings(provider="brave", brave=BRAVE, serper=SERPER), ["web_search"], ["A_KEY"]),
        (
            WebSettings(provider="auto", brave=BRAVE, serper=SERPER, tavily=EMPTY),
            ["web_search", "read"],
            ["B_KEY", "A_KEY"],
        ),
        (
            WebSettings(provider="auto", provider_priority=("brave",), brave=BRAVE, serper=SERPER),
            ["web_search"],
            ["A_KEY"],
        ),
        (WebSettings(provider="serper", serper=OFF), ["web_search"], []),
        (WebSettings(provider="ddgs", brave=BRAVE), ["web_search"], []),
        (WebSettings(provider="brave", brave=BRAVE), ["fetch_content", "bash"], []),
        (WebSettings(provider="brave", brave=BRAVE, enabled=False), ["web_search"], []),
    ],
)
def test_processes_get_the_keys_they_need(web, tools, names):
    assert list(export_search_keys(SubagentsConfig(web=web), ENVIRONMENT, tools)) == names
