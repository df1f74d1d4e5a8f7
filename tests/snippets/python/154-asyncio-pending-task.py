import asyncio
async def forever():
    await asyncio.sleep(100)
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.set_exception_handler(lambda loop, context: print(context["message"]))
task = loop.create_task(forever(), name="waiting") if hasattr(asyncio, "current_task") else None
loop.run_until_complete(asyncio.sleep(0))
print("left pending")
loop.close()
del task
