"""Read models for front ends: history, runs, agents, reports and export. They keep no state and decide nothing."""
