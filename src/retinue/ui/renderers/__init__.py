"""How each kind of block looks: one class a file, all of them a `BlockView`."""
