"""The convert_content tool: converts documents to markdown in a separate process."""
