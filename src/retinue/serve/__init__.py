"""Front ends for programs and plain terminals. They import only the app and core layers."""
