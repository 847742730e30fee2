"""The wire formats of four model APIs, one module each."""
