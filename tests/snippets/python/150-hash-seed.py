print(hash("a") == hash("a"), hash(1), hash(None) == hash(None))
