"""File Feeds on a blackboard: reading, writing and invalidating updates in any store that obstore supports."""
