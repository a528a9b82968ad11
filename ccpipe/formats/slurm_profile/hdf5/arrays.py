"""Types of numpy arrays."""

from typing import Any

import numpy as np

Records = np.ndarray[tuple[int], np.dtype[np.void]]
"""Rows of named fields."""

Array = np.ndarray[Any, np.dtype[Any]]
"""Values of one field, or flags for them."""
