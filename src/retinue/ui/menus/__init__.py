"""Menus: lists that lead to lists, each a small class with one walk through it."""
