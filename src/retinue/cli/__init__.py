"""The command line: parses arguments and starts a front end. Commands import heavy modules lazily."""
