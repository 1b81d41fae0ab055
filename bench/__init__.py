"""The benchmarks of dirty_throttle; see bench/run --help."""
