"""The `dispatch` surface: one tool that hands a task to an agent and waits, as CodingCode has it."""
