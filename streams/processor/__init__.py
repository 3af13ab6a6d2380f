"""The processor: one loop that turns commands and time into due events, exactly once."""
