"""What reads documents, one format a file. Standard library only: it runs in a confined process without any package."""
