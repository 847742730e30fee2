"""The same runs on a durable engine: a database, and workers on any number of machines. Optional."""
