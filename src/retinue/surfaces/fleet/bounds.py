"""Texts held to what a parent's context can bear. Pure."""

MAX_CHARS = 20_000


def bound_text(text: str, output_file: str = "", *, limit: int = MAX_CHARS) -> str:
    """The text, or its beginning with a line that says how much is left out and where all of it is."""
    if len(text) <= limit:
        return text
    where = f" The whole of it is in {output_file}" if output_file else " peek shows other parts of it"
    return f"{text[:limit]}\n\n[{len(text) - limit} characters left out.{where}]"
