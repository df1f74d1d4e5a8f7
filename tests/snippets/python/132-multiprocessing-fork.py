import multiprocessing
def work(queue, n):
    queue.put((n, multiprocessing.current_process().name))
if __name__ == "__main__":
    queue = multiprocessing.get_context("fork").Queue()
    processes = [multiprocessing.get_context("fork").Process(target=work, args=(queue, n)) for n in range(3)]
    for process in processes: process.start()
    print(sorted(queue.get() for _ in processes))
    for process in processes: process.join()
    print([process.exitcode for process in processes])
