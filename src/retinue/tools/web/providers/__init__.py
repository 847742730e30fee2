"""Search providers, one a file: what is asked, and what in the answer is a result. They make no request themselves."""
