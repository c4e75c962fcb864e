"""What is raised for a trace that cannot be read."""


class TraceError(ValueError):
  """A file that is no trace, or one of another version, or damaged; the message names the line."""
