import asyncio
async def serve(reader, writer):
    writer.write(await reader.readline())
    writer.close()
async def main():
    server = await asyncio.start_unix_server(serve, "/tmp/sock")
    reader, writer = await asyncio.open_unix_connection("/tmp/sock")
    writer.write(b"echo\n")
    print(await reader.readline())
    writer.close()
    server.close()
asyncio.run(main())
