"""Chunks become tables that follow their topics, in as many warehouses as one likes."""
