import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=0.5)
except OSError as error:
    print(type(error).__name__)
