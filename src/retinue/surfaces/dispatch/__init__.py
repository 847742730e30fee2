"""The `dispatch` surface: one tool that gives a task to an agent and waits, compatible with CodingCode."""
