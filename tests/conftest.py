"""What every test can ask for."""

from tests.kafka import kafka

__all__ = ["kafka"]
