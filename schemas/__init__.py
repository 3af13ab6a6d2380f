"""What travels and what is stored: plain data, its validation, and the documents made from it."""
