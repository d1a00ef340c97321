"""The reference of `steady`: watches nodes, parses each event, keeps nothing. Its argument is a kubeconfig."""

import asyncio
import json
import sys
from pathlib import Path

import aiohttp

from devcluster.kubeconfig import read_kubeconfig


async def watch(kubeconfig: Path) -> None:
    """Read events for ever."""
    access = read_kubeconfig(kubeconfig)
    headers = {"Authorization": f"Bearer {access.token}"}
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, read_bufsize=2**24) as session:
        url = f"{access.server}/api/v1/nodes?watch=1&allowWatchBookmarks=1"
        async with session.get(url, ssl=access.tls) as response:
            async for line in response.content:
                json.loads(line)


if __name__ == "__main__":
    asyncio.run(watch(Path(sys.argv[1])))
