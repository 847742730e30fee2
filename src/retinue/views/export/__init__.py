"""Export of a session as one self-contained HTML file."""
