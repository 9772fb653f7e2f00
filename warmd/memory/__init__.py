"""How much memory there is, how much of it warming may take, and what people are told about it."""
