"""A run in a private copy of the repository, from which no work is lost."""
