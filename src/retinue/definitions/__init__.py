"""Agent files: markdown with frontmatter in three dialects, from where they lie to frozen definitions."""
