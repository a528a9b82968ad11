"""``ccpipe dead``: dead letters, listed, shown and replayed."""
