import socket, threading
server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen()
def answer():
    connection, _ = server.accept()
    connection.sendall(connection.recv(10).upper())
    connection.close()
threading.Thread(target=answer).start()
client = socket.create_connection(server.getsockname())
client.sendall(b"hello")
print(client.recv(10))
