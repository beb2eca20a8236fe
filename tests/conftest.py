"""Fixed seeds for every run; `HYPOTHESIS_PROFILE=fresh` draws new ones."""

import os

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
