import asyncio
async def forgotten():
    pass
forgotten()
print("end")
