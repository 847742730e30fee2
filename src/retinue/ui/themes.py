"""The dark and the light theme, and the one for terminals without colour. Data only."""

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
