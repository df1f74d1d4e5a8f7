import multiprocessing
def work(n):
    return n + 1
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [1, 2, 3]))
