"""The secret key of masks in tests, and the hashes that it makes."""

import hmac
from hashlib import sha256

KEY = b"k" * 32


def keyed(text: str, key: bytes = KEY) -> str:
    """Return the keyed hash of a text."""
    return hmac.new(key, text.encode(), sha256).hexdigest()
