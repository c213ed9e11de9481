"""Many small objects for a blackboard on S3."""

import asyncio

import obstore


def put_many(board, keys, content):
    """Write many small objects at once."""

    async def put(key, gate):
        async with gate:
            await obstore.put_async(board._client._store, key, content)

    async def put_all():
        gate = asyncio.Semaphore(32)
        await asyncio.gather(*[put(key, gate) for key in keys])

    asyncio.run(put_all())
