"""Extensions: Python files and installed packages that add tools, models, hooks and more with `register(api)`."""
