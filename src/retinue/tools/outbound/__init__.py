"""HTTP requests to places that others name: which may be reached, how they are connected to, and how much is taken."""
