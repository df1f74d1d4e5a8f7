import threading, os
main = threading.main_thread()
print(main.name, main is threading.current_thread(), main.ident == threading.get_ident(), main.native_id == threading.get_native_id(), threading.get_native_id() == os.getpid())
print(threading.enumerate() == [main])
