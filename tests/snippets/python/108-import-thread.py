import threading
def work():
    import decimal
    results.append(decimal.Decimal("0.1") + 1)
results = []
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
print(results)
