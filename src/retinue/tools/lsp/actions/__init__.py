"""The actions of the `lsp` tool, one file each: a function `run` from a call to its result."""
