"""What decides: who reads whom, what is due of it, and what is requested."""
