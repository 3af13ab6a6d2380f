"""What people and programs talk to: the command line, HTTP and the pages."""
