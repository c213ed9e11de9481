"""Users' declarations, as values and as asset specs. Nothing here decides, requests or runs."""
