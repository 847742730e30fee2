"""The terminal UI: state computed from events, and widgets that show it. Only this package imports Textual."""
