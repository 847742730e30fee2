"""The dark and the light theme, and which one a setting means."""

from collections.abc import Collection

from textual.theme import Theme

DARK = Theme(
    name="retinue-dark",
    primary="#7aa2f7",
    secondary="#9aa5ce",
    accent="#e0af68",
    warning="#e0af68",
    error="#f7768e",
    success="#9ece6a",
    foreground="#c0caf5",
    background="#16161e",
    surface="#1a1b26",
    panel="#24283b",
    dark=True,
)
LIGHT = Theme(
    name="retinue-light",
    primary="#34548a",
    secondary="#565a6e",
    accent="#8f5e15",
    warning="#8f5e15",
    error="#b3304c",
    success="#33635c",
    foreground="#343b58",
    background="#f4f4f8",
    surface="#eaeaf0",
    panel="#dcdce4",
    dark=False,
)
THEMES = {theme.name: theme for theme in (DARK, LIGHT)}
DEFAULT = DARK.name
AUTO = "auto"
_PI_NAMES = {"dark": DARK.name, "light": LIGHT.name}


def resolve_theme(setting: str, known: Collection[str], *, is_dark: bool) -> str:
    """The theme that pi's setting `theme` means; empty if it names an unknown one.

    `auto` and an empty setting follow the terminal, as does pi's `light/dark`: the theme for light terminals first.
    """
    light, slash, dark = (setting if setting not in ("", AUTO) else "light/dark").partition("/")
    name = dark if slash and is_dark else light
    return _PI_NAMES.get(name, name if name in known else "")


def to_setting(name: str) -> str:
    """The value of pi's setting for a theme of `/theme`."""
    return "light/dark" if name == AUTO else next((short for short, own in _PI_NAMES.items() if own == name), name)
