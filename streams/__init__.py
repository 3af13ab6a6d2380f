"""Kafka and the outside world: the processor, the delivery workers, the console."""
