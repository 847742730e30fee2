"""Faces for programs and plain terminals; they know the app and core only."""
