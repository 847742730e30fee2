"""Document readers, one file per format. Standard library only: they run in a sandboxed process without packages."""
