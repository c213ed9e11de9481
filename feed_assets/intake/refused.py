"""A request that the receiver refuses."""


class RefusedRequest(Exception):
    """An error with the HTTP status and the text of the answer: what was found, what was expected, what to do."""

    def __init__(self, status: int, why: str, retry_after: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.retry_after = retry_after
