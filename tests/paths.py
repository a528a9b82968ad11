"""Where the project and its test data lie."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST_DATA = ROOT / "tests" / "data"
