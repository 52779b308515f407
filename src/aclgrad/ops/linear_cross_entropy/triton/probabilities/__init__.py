"""p = (softmax − one-hot) · grad: inside a product, beside a product, or in a pass over logits."""
