"""Lets the model call a function through OpenAI's public agents library for Python: python3 openai_agents_tools.py CODE

The code runs the agent. Prints what the function was called with, the calls' arguments as they came, the answer and the length of
its audio as JSON.
"""

import asyncio
import json
import sys

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from readme_code import evaluate

PATIENCE_S = 30


async def run(code):
    came = {"called": [], "arguments": [], "answer": "", "audio_s": 0, "errors": []}

    @function_tool
    def get_weather(city: str) -> str:
        """Says the weather in a city."""
        came["called"].append({"city": city})
        return f"sunny in {city}"

    agent = RealtimeAgent(name="assistant", instructions="Answer briefly.", tools=[get_weather])
    settings = {"model_name": "gpt-realtime", "output_modalities": ["audio"]}
    runner = RealtimeRunner(agent, config={"model_settings": settings, "tracing_disabled": True})
    async with await evaluate(code, runner=runner) as session:
        await session.send_message("What is the weather in Rome?")
        async for event in session:
            match event.type:
                case "audio":
                    came["audio_s"] += len(event.audio.data) / 48000
                case "error":
                    came["errors"].append(str(event.error))
                case "raw_model_event" if event.data.type == "transcript_delta":
                    came["answer"] += event.data.delta
                case "raw_model_event" if event.data.type == "raw_server_event":
                    message = event.data.data
                    if message["type"] == "response.function_call_arguments.done":
                        came["arguments"].append(message["arguments"])
                    done = message if message["type"] == "response.done" else None
                    if done and done["response"]["output"][0]["type"] == "message":
                        return came


print(json.dumps(asyncio.run(asyncio.wait_for(run(sys.argv[1]), PATIENCE_S))))
