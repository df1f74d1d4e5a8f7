import threading, time
def late():
    time.sleep(0.1)
    print("thread is done")
threading.Thread(target=late).start()
print("main is done")
