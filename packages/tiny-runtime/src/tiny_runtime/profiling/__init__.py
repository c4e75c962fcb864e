"""What ran, when and for how long: records, a table of them, and files that other tools read."""
