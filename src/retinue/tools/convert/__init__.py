"""The convert_content tool: documents as markdown, read by a process of their own."""
