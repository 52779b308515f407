"""The loss of a whole vocabulary with its gradients: where logits wait until their statistics are complete."""
