"""Optional features around a run, one per module, and code that several of them share. No feature knows another."""
