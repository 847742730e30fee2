"""Language servers and the `lsp` tool: found on this machine, started once per project, shared by all runs."""
