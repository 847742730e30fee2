"""Optional durable execution of runs: recorded in a local database, or sent to workers on other machines."""
