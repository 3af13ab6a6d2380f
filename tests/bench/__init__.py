"""Figures, each beside a bare consume → produce transaction loop of the same run.

`python -m tests.bench` starts a Kafka of its own, or uses MINUTEWHEEL_TEST_BOOTSTRAP.
"""
