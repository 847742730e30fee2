"""The `fleet` surface: background agents that are started, steered and read with six tools, one file each."""
