import _thread, time
done = []
_thread.start_new_thread(lambda: done.append(1), ())
while not done:
    time.sleep(0.001)
print("done")
