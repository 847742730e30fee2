"""Agent files: Markdown with frontmatter in three dialects, from folders on disk to frozen definitions."""
