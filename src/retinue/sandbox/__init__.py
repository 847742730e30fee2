"""What a command may touch, enforced by the kernel; and, honestly, what this machine cannot enforce."""
