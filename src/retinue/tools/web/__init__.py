"""The web tools: search, pages, and what of both is kept to be read again."""
