"""Address and path of the servers that we start on this machine."""

LOOPBACK = "127.0.0.1"
"""The name `localhost` is not used: clients try `[::1]` first, where another user may have the same port."""

STATUS = "/status"
"""The path of the web UI that shows the status of all datasets."""
