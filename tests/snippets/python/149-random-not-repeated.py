import random, secrets, uuid, os
print(len({random.random() for _ in range(100)}), len(secrets.token_hex(8)), uuid.uuid4().version, len(os.urandom(4)))
random.seed(7)
print([random.randint(0, 99) for _ in range(5)])
