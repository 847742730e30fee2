"""Checkpoints of the workspace, and what is made from them: rewind, and undo of one run."""
