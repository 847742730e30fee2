"""Views of conversation blocks, each a subclass of `BlockView`."""
