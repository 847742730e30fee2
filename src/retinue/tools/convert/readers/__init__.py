"""Document readers, one file per format. Standard library only, except for PDF: see PACKAGES in converter.py."""
