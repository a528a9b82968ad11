"""When collectors run, in which threads, and what they measure."""
