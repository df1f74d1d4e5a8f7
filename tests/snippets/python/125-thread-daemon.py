import threading, time
threading.Thread(target=time.sleep, args=(10,), daemon=True).start()
print("not waiting")
