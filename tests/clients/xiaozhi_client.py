"""Talks through PyPI's xiaozhi-sdk, unmodified: python3 xiaozhi_client.py OTA_URL MODE RECORDING.wav HEARD.wav

The recording is 16 kHz, mono, 16 bit. MODE is `auto`, `manual` or `realtime`. After the answer, a text is typed, and its answer
is aborted. With the mode `tool`, the device has a tool `set_volume`, and only a text is typed, whose answer may call it. Writes the
first answer's audio to HEARD.wav and prints as JSON what came.
"""

import asyncio
import json
import logging
import sys
import time
import wave

from xiaozhi_sdk import XiaoZhiWebsocket
from xiaozhi_sdk.utils import mcp_tool

PATIENCE_S = 60
RATE_HZ = 16000
PACKET_BYTES = RATE_HZ * 60 // 1000 * 2

errors = []


class Errors(logging.Handler):
    def emit(self, record):
        if record.levelno >= logging.ERROR:
            errors.append(record.getMessage())


logging.getLogger("xiaozhi_sdk").addHandler(Errors())


class Device:
    def __init__(self, ota_url, mode):
        self.messages, self.state = [], asyncio.Condition()
        self.volumes, self.listed = [], asyncio.Event()
        self.sdk = XiaoZhiWebsocket(self.handle, ota_url=ota_url, audio_sample_rate=RATE_HZ)
        self.sdk.mode = mode

    async def handle(self, message):
        async with self.state:
            self.messages.append(message)
            self.state.notify_all()

    async def add_tool(self):
        """Adds a tool by the SDK's own description, and notes when the server has asked for the list."""

        # The SDK copies the tool, and with a method its object.
        def set_volume(arguments):
            self.volumes.append(arguments)
            return {"volume": arguments["volume"]}, False

        tool = mcp_tool.set_volume | {"tool_func": set_volume, "is_async": False}
        await self.sdk.set_mcp_tool([tool])
        handle = self.sdk.mcp

        async def note(data):
            await handle(data)
            if data["payload"]["method"] == "tools/list":
                self.listed.set()

        self.sdk.mcp = note

    def count(self, state):
        return sum(message.get("state") == state for message in self.messages)

    async def wait_for(self, state, count):
        async with self.state:
            await self.state.wait_for(lambda: self.count(state) >= count)

    async def listen(self, **members):
        await self.sdk.websocket.send(json.dumps({"session_id": self.sdk.session_id, "type": "listen", **members}))

    async def speak(self, recording, until):
        """Sends the recording in real time, then silence, until this is done."""
        with wave.open(recording) as file:
            audio = file.readframes(file.getnframes())
        began, at = time.monotonic(), 0
        while at < len(audio) or not until.done():
            await self.sdk.send_audio(audio[at : at + PACKET_BYTES].ljust(PACKET_BYTES, b"\0"))
            at += PACKET_BYTES
            await asyncio.sleep(max(0.0, began + at / 2 / RATE_HZ - time.monotonic()))


async def use_tool(device):
    await device.listed.wait()
    await device.sdk.send_text("Set the volume to 30.")
    await device.wait_for("stop", 1)
    await device.sdk.close()
    return {"volumes": device.volumes, "messages": device.messages, "errors": errors}


async def talk(ota_url, mode, recording, heard):
    device = Device(ota_url, "auto" if mode == "tool" else mode)
    if mode == "tool":
        await device.add_tool()
    assert await device.sdk.init_connection("AA:BB:CC:DD:EE:FF")
    if mode == "tool":
        return await use_tool(device)
    started = asyncio.ensure_future(device.wait_for("start", 1))
    if mode == "manual":
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        await device.speak(recording, done)
        # The SDK has no function for the button's release.
        await device.listen(state="stop")
    else:
        # Like its command line, which sends nothing while the answer is played.
        await device.speak(recording, started)
    await device.wait_for("stop", 1)
    packets = list(device.sdk.output_audio_queue)
    with wave.open(heard, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(b"".join(packet.tobytes() for packet in packets))
    await device.sdk.send_text("Tell me a long story about a river.")
    await device.wait_for("start", 2)
    await device.sdk.send_abort()
    await device.wait_for("stop", 2)
    await device.sdk.close()
    return {"url": device.sdk.url, "messages": device.messages, "packets": len(packets), "errors": errors}


print(json.dumps(asyncio.run(asyncio.wait_for(talk(*sys.argv[1:]), PATIENCE_S))))
