"""What a fetch is made of, one duty a module: who may be talked to, when, how much is read, and what text is in it."""
