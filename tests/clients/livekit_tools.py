"""Lets the model call a function through LiveKit's OpenAI plugin: python3 livekit_tools.py CODE

The code is a keyword argument of the model. The driver does what LiveKit's agent session does with calls. Prints what the function
was called with, the answer, the length of its audio, and the tokens that LiveKit counts for each response, as JSON.
"""

import asyncio
import json
import logging
import sys

from livekit.agents import llm
from livekit.agents.utils import http_context
from livekit.plugins import openai
from readme_code import keywords

logging.disable()
PATIENCE_S = 30


@llm.function_tool
async def get_weather(city: str) -> str:
    """Says the weather in a city."""
    return f"sunny in {city}"


async def play(generation, came):
    """Plays a generation. Returns its calls."""

    async def messages():
        async for message in generation.message_stream:

            async def texts():
                async for delta in message.text_stream:
                    came["answer"] += delta

            async def audio():
                async for frame in message.audio_stream:
                    came["audio_s"] += frame.duration

            await asyncio.gather(texts(), audio())

    async def calls():
        return [call async for call in generation.function_stream]

    _, found = await asyncio.gather(messages(), calls())
    return found


async def run(code):
    came = {"called": [], "answer": "", "audio_s": 0, "usage": [], "errors": []}
    async with http_context.open():
        model = openai.realtime.RealtimeModel(api_key="a key", model="gpt-realtime", **keywords(code))
        session = model.session()
        counted = asyncio.Queue()
        # The metrics of the connection name no response.
        session.on("metrics_collected", lambda metrics: metrics.request_id and counted.put_nowait(metrics))
        session.on("error", lambda event: came["errors"].append(str(event.error)))
        await session.update_tools([get_weather])
        context = llm.ChatContext()
        context.add_message(role="user", content="What is the weather in Rome?")
        await session.update_chat_ctx(context)
        calls = await play(await session.generate_reply(), came)
        context = session.chat_ctx.copy()
        for call in calls:
            arguments = json.loads(call.arguments)
            came["called"].append(arguments)
            output = await get_weather(**arguments)
            result = llm.FunctionCallOutput(call_id=call.call_id, name=call.name, output=output, is_error=False)
            context.items.append(result)
        await session.update_chat_ctx(context)
        await play(await session.generate_reply(), came)
        for _ in range(2):
            metrics = await counted.get()
            came["usage"].append([metrics.input_tokens, metrics.output_tokens])
        await session.aclose()
    return came


print(json.dumps(asyncio.run(asyncio.wait_for(run(sys.argv[1]), PATIENCE_S))))
