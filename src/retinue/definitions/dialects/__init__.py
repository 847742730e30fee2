"""The three dialects: each is a pure function from the text of a file to a Definition and its problems."""
