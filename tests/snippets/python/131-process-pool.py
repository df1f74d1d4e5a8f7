from concurrent.futures import ProcessPoolExecutor
def square(x):
    return x * x
if __name__ == "__main__":
    with ProcessPoolExecutor(2) as pool:
        print(list(pool.map(square, range(5))))
