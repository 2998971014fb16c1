"""Lets the model call a function through OpenAI's public Python library: python3 openai_tools.py CODE

The code makes a client and connects it. Prints what the function was called with, the answer and the length of its audio as JSON.
`invalid` lists the events that the library's own types reject.
"""

import asyncio
import base64
import json
import sys

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError
from readme_code import evaluate

PATIENCE_S = 30
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Says the weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


async def receive(connection, invalid):
    schema = TypeAdapter(RealtimeServerEvent)
    while True:
        data = await connection.recv_bytes()
        try:
            schema.validate_json(data)
        except ValidationError as error:
            invalid.append(f"{data[:300]}: {error}")
        yield connection.parse_event(data)


async def run(code):
    came = {"called": [], "audio_s": 0, "errors": [], "invalid": []}
    async with evaluate(code, AsyncOpenAI=AsyncOpenAI) as connection:
        await connection.session.update(session={"type": "realtime", "tools": [TOOL], "tool_choice": "auto"})
        content = [{"type": "input_text", "text": "What is the weather in Rome?"}]
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": content})
        await connection.response.create()
        async for event in receive(connection, came["invalid"]):
            match event.type:
                case "response.output_audio.delta":
                    came["audio_s"] += len(base64.b64decode(event.delta)) / 48000
                case "response.done":
                    calls = [item for item in event.response.output if item.type == "function_call"]
                    for call in calls:
                        arguments = json.loads(call.arguments)
                        came["called"].append(arguments)
                        output = json.dumps(f"sunny in {arguments['city']}")
                        item = {"type": "function_call_output", "call_id": call.call_id, "output": output}
                        await connection.conversation.item.create(item=item)
                    if not calls:
                        came["answer"] = event.response.output[0].content[0].transcript
                        return came
                    await connection.response.create()
                case "error":
                    came["errors"].append(event.error.message)


print(json.dumps(asyncio.run(asyncio.wait_for(run(sys.argv[1]), PATIENCE_S))))
