import os, signal
signal.signal(signal.SIGUSR1, lambda number, frame: print("got", signal.Signals(number).name, frame.f_code.co_name))
os.kill(os.getpid(), signal.SIGUSR1)
print("after")
