"""The three dialects: each a pure function from the text of a file to a Definition and what was wrong with it."""
