"""Data and protocols of retinue: no I/O, no async runtime, no clock."""
