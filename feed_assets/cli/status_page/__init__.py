"""The status as a self-contained HTML page: nothing is loaded from elsewhere, and every text of others is escaped."""
