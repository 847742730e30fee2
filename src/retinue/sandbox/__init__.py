"""Restrict what commands can access, enforced by the kernel, and report what this machine cannot enforce."""
