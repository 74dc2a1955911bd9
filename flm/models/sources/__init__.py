"""Where models come from: one small module a source."""
