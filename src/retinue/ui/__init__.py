"""The terminal UI: a state folded from events, and small widgets that show it. Textual is known here only."""
