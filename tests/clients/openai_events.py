"""Provokes every server event, and checks each with the types of OpenAI's libraries: python3 openai_events.py HTTP_URL

The client's messages are in realtime_tour.json, where SPOKEN stands for the item that was heard last.
Prints the events' types and the rejected events as JSON.
"""

import array
import asyncio
import base64
import json
import math
import pathlib
import sys

from agents.realtime import openai_realtime
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError

PATIENCE_S = 30
SCHEMAS = {"openai": TypeAdapter(RealtimeServerEvent), "openai-agents": openai_realtime.get_server_event_type_adapter()}


class Tour:
    def __init__(self, connection):
        self.connection, self.kinds, self.statuses, self.invalid = connection, [], [], []
        self.spoken = ""

    async def next(self):
        data = await asyncio.wait_for(self.connection.recv_bytes(), PATIENCE_S)
        for name, schema in SCHEMAS.items():
            try:
                schema.validate_json(data)
            except ValidationError as error:
                causes = [(cause["loc"], cause["msg"]) for cause in error.errors()]
                self.invalid.append(f"{name}: {data.decode()[:400]}: {causes[:4]}")
        event = json.loads(data)
        self.kinds.append(event["type"])
        if event["type"] == "response.output_audio.delta":
            self.spoken = event["item_id"]
        if event["type"] == "response.done":
            self.statuses.append(event["response"]["status"])
        return event["type"]

    async def take(self, step):
        for message in messages(step):
            await self.connection.send_raw(json.dumps(message).replace("SPOKEN", self.spoken))
        while "await" in step and await self.next() != step["await"]:
            pass


def messages(step):
    """What a step sends: its message, or a tone."""
    if "tone_s" not in step:
        return [step["send"]]
    tone = [int(8000 * math.sin(at / 10)) for at in range(int(24000 * step["tone_s"]))]
    audio = base64.b64encode(array.array("h", tone).tobytes()).decode()
    return [{"type": "input_audio_buffer.append", "audio": audio}]


async def main(url):
    steps = json.loads(pathlib.Path(__file__).with_name("realtime_tour.json").read_text())
    client = AsyncOpenAI(api_key="a key", base_url=f"{url}/v1")
    async with client.realtime.connect(model="gpt-realtime") as connection:
        tour = Tour(connection)
        for step in steps:
            await tour.take(step)
    print(json.dumps({"kinds": sorted(set(tour.kinds)), "statuses": tour.statuses, "invalid": tour.invalid}))


asyncio.run(main(sys.argv[1]))
