import asyncio
async def tick(n):
    await asyncio.sleep(0.01 * n)
    return n
async def main():
    print(await asyncio.gather(*(tick(n) for n in (3, 1, 2))))
asyncio.run(main())
