import threading
results = []
lock = threading.Lock()
def work(n):
    with lock:
        results.append(n * n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(10)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sorted(results), threading.active_count())
