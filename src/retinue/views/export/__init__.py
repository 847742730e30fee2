"""A session as one HTML file that needs nothing else: no network, no program, no other file."""
