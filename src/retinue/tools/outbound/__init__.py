"""HTTP requests to untrusted addresses: which hosts may be reached, how to connect, and how much is read."""
