"""How four model APIs look on the wire, one module each, with the same functions."""
