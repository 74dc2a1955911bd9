"""What the judges share (``checks``), and what runs them all: ``environment`` and ``run``."""
