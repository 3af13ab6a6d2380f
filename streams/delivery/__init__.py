"""The delivery worker: due events in, calls to the outside, one outcome each."""

from streams.delivery.worker import DeliveryWorker

__all__ = ["DeliveryWorker"]
