"""What the tests of the site import: tools/website, tests/page_blocks.py, and the browser of tests/testing."""

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS.parent / "tools"), str(TESTS), str(TESTS / "testing")]
