"""What every test can ask for, and how hypothesis works here."""

from hypothesis import settings

from tests.kafka import kafka

# Beside other tests an example may take any time; the suite's own timeout bounds them all.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")

__all__ = ["kafka"]
