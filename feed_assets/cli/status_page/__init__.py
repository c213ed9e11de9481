"""The status as a self-contained HTML page. Nothing is loaded from elsewhere, and foreign text is escaped."""
