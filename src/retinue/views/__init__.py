"""What front ends read: history, runs, agents, reports and export. No state of their own, no decisions."""
