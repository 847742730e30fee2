"""Run an agent in its own git worktree and save its work to a branch."""
