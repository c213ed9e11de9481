"""The error for a message that becomes a dead letter."""


class Poison(Exception):
    """An error for a message that is not a valid record. Its text is the reason.

    The text may quote the message. `public` is the reason for topics with masked columns, and quotes nothing of it.
    """

    def __init__(self, reason: str, public: str = "the reason is withheld: it may quote a masked column") -> None:
        super().__init__(reason)
        self.public = public

    @classmethod
    def plain(cls, reason: str) -> "Poison":
        """Return an error whose text quotes nothing of a message but sizes and schema ids."""
        return cls(reason, reason)
