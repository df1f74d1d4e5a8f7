import multiprocessing, time
def work():
    time.sleep(0.1)
    print("child is done", flush=True)
if __name__ == "__main__":
    multiprocessing.get_context("fork").Process(target=work).start()
    print("parent is done", flush=True)
