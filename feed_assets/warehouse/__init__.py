"""Loading of the chunks of topics, and of the updates of datasets, into tables of warehouses."""
