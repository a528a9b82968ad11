"""Grid Engine's accounting, read and summed."""
