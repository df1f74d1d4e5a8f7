import asyncio
async def main():
    process = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    print(out, process.returncode)
asyncio.run(main())
