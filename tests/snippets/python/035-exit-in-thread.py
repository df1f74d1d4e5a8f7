import sys, threading
def work():
    sys.exit(9)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("main goes on")
