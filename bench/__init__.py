"""Speed, memory and durability of retinue, as ratios to a bare client in the same run. `make bench` runs all of it."""
