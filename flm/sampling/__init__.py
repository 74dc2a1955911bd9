"""From logits to a token: one visible order of small steps, over the whole batch."""
