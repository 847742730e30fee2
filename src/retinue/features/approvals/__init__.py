"""Whether a tool call is made: rules, modes, hooks, and a person's word."""
