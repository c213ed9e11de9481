"""Where all that we start on this machine listens."""

LOOPBACK = "127.0.0.1"
"""Never `localhost`: a client tries `[::1]` first, where any user of the machine may have the same port."""

STATUS = "/status"
"""Where the web UI has the status of all datasets."""
