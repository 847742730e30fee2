"""The surface `fleet`: agents in the background, asked for, steered and read with six tools, one file each."""
