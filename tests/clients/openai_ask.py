"""Types a question through OpenAI's public Python library, and prints the answer's text: python3 openai_ask.py CODE

The code makes a client and connects it, with the version of the library on $PYTHONPATH.
"""

import asyncio
import sys

from openai import AsyncOpenAI
from readme_code import evaluate

PATIENCE_S = 30


async def ask(code):
    async with evaluate(code, AsyncOpenAI=AsyncOpenAI) as connection:
        await connection.session.update(session={"type": "realtime", "output_modalities": ["text"]})
        content = [{"type": "input_text", "text": "Good morning."}]
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await connection.response.create()
        async for event in connection:
            if event.type == "response.output_text.done":
                return event.text
            assert event.type != "error", event


print(asyncio.run(asyncio.wait_for(ask(sys.argv[1]), PATIENCE_S)))
