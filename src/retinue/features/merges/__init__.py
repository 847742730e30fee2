"""The merge queue: lands branches on a target, each merge verified."""
