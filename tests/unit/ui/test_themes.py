import pytest

from retinue.ui.themes import resolve_theme, to_setting


@pytest.mark.parametrize(
    ("setting", "on_dark", "on_light"),
    [
        ("", "retinue-dark", "retinue-light"),
        ("auto", "retinue-dark", "retinue-light"),
        ("light/dark", "retinue-dark", "retinue-light"),
        ("light/nord", "nord", "retinue-light"),
        ("dark", "retinue-dark", "retinue-dark"),
        ("nord", "nord", "nord"),
        ("unknown", "", ""),
    ],
)
def test_setting_names_a_theme(setting, on_dark, on_light):
    found = [resolve_theme(setting, ("nord",), is_dark=is_dark) for is_dark in (True, False)]
    assert found == [on_dark, on_light]


def test_stored_names_are_those_of_pi():
    assert [to_setting(name) for name in ("auto", "retinue-light", "nord")] == ["light/dark", "light", "nord"]
