"""softsign: aclnnSoftsign and aclnnSoftsignBackward."""

from .functional import softsign, softsign_backward

__all__ = ["softsign", "softsign_backward"]
