"""One hypothesis profile for all tests: no deadline, and in CI the same examples on every run."""

import os

from hypothesis import settings

settings.register_profile("gpn_ref", deadline=None, print_blob=True, derandomize="CI" in os.environ)
settings.load_profile("gpn_ref")
