"""Groups: processes that exchange bytes. What one can do (`protocol`), which there are (`discovery`), and ours."""
