"""Line protocol: decoding, encoding, rules, and the memory of the series table."""
