"""Loading of chunks into tables that follow their topics, in any number of warehouses."""
