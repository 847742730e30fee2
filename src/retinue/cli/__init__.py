"""The command line: parses arguments, starts a face. Heavy imports happen inside the commands."""
