"""The core: what a reminder is, when it is due, and the store that remembers it."""
