"""pi's RPC protocol: commands as JSON lines on standard input, answers and events on standard output."""
