import asyncio
async def fail():
    await asyncio.sleep(0)
    raise RuntimeError("in a task")
async def main():
    await asyncio.create_task(fail())
asyncio.run(main())
