"""Talks as a strict client of SGLang-Omni: sglang_omni_client.py URL RECORDING.wav [PICTURE.jpg]

An own client, because the guide's example is not part of the package. It follows the documented order and fails at whatever does
not: the page of capabilities, session.created, session.update and its grant, numbered appends of 80 ms at the pace of speech, each
acknowledged in order, one report for each second of audio, the end of the input, its drain, and session.close. Says a second of
silence, the recording and 8 s of silence. Then it breaks rules, for the errors. Prints one JSON line.
"""

import asyncio
import base64
import json
import sys
import urllib.request
import wave

import websockets

RATE_HZ = 16_000
PACKET_SAMPLES = RATE_HZ * 80 // 1000
# Sent before the input and after its end, with the error that each must have.
EARLY = [
    ({"type": "input_audio_buffer.append", "event_id": "early", "audio": "AAA=", "sglang": {"seq": 0}}, "invalid_state"),
]
WRONG = [
    ({"type": "input_audio_buffer.append", "event_id": "gap", "audio": "AAA=", "sglang": {"seq": 7}}, "invalid_state"),
    (
        {"type": "input_audio_buffer.append", "event_id": "time", "audio": "AAA=", "sglang": {"seq": 0, "t_start_ms": 5.0}},
        "invalid_state",
    ),
    ({"type": "input_audio_buffer.append", "event_id": "odd", "audio": "AA==", "sglang": {"seq": 0}}, "invalid_request"),
    ({"type": "input_audio_buffer.append", "audio": "AAA=", "sglang": {"seq": 0}}, "invalid_request"),
    ({"type": "response.cancel", "event_id": "cancel"}, "not_supported"),
    ({"type": "no.such.event", "event_id": "unknown"}, "not_supported"),
]


def require(holds, *details):
    if not holds:
        raise AssertionError(*details)


class Client:
    def __init__(self, socket):
        self.socket = socket
        self.sent = 0
        self.accepted = 0
        self.accepted_samples = 0
        self.sent_samples = []
        self.units = 0
        self.response = None
        self.came = {"events": [], "transcript": "", "errors": [], "statuses": []}
        self.audio = b""
        self.ids = set()
        self.last = {}
        self.news = asyncio.Condition()

    async def send(self, kind, **fields):
        await self.socket.send(json.dumps({"type": kind, "event_id": f"{kind}-{self.sent}", **fields}))

    async def read(self):
        async for text in self.socket:
            event = json.loads(text)
            require(event["event_id"] not in self.ids, "an event_id twice", event)
            self.ids.add(event["event_id"])
            self.check(event)
            async with self.news:
                self.came["events"].append(event["type"])
                self.last[event["type"]] = event
                self.news.notify_all()

    def check(self, event):
        kind = event["type"]
        if kind == "sglang.input_audio.accepted":
            require(event["seq"] == self.accepted, "acknowledged out of order", event)
            require(event["client_event_id"] == f"input_audio_buffer.append-{event['seq']}", event)
            self.accepted_samples += self.sent_samples[self.accepted]
            require(event["accepted_end_ms"] == self.accepted_samples * 1000 / RATE_HZ, event)
            self.accepted += 1
        elif kind == "sglang.unit.done":
            require(event["unit_id"] == f"unit_{self.units}", "units out of order", event)
            require(event["sglang"]["media_time"]["t_start_ms"] == self.units * 1000, event)
            self.units += 1
        elif kind == "response.created":
            require(self.response is None, "a response within a response", event)
            self.response = event["response"]["id"]
        elif kind in ("response.output_audio.delta", "response.output_audio_transcript.delta"):
            require(event["response_id"] == self.response, "output of no response", event)
            require(event["sglang"]["unit_id"] == f"unit_{self.units}", "output of another unit", event)
            require(event["sglang"]["chunk_seq"] >= 0, event)
            if kind == "response.output_audio.delta":
                self.audio += base64.b64decode(event["delta"], validate=True)
            else:
                self.came["transcript"] += event["delta"]
        elif kind == "response.done":
            require(event["response"]["id"] == self.response, "the end of another response", event)
            self.came["statuses"].append(event["response"]["status"])
            self.response = None
        elif kind == "error":
            require(event["sglang"]["fatal"] is False, event)
            self.came["errors"].append(event["error"])

    async def until(self, kind):
        async with self.news:
            await self.news.wait_for(lambda: kind in self.last)
            return self.last[kind]

    async def fails(self, message, code):
        count = len(self.came["errors"])
        await self.socket.send(json.dumps(message))
        async with self.news:
            await self.news.wait_for(lambda: len(self.came["errors"]) > count)
        error = self.came["errors"][-1]
        require((error["code"], error["event_id"]) == (code, message.get("event_id")), message, error)

    async def append(self, pcm):
        start_ms = sum(self.sent_samples) * 1000 / RATE_HZ
        self.sent_samples.append(len(pcm) // 2)
        audio = base64.b64encode(pcm).decode()
        await self.send("input_audio_buffer.append", audio=audio, sglang={"seq": self.sent, "t_start_ms": start_ms})
        self.sent += 1


async def talk(url, recording, picture=None):
    page = json.load(urllib.request.urlopen(url.replace("ws", "http", 1) + "/capabilities"))
    with wave.open(recording) as file:
        pcm = bytes(2 * RATE_HZ) + file.readframes(file.getnframes()) + bytes(8 * 2 * RATE_HZ)
    loop = asyncio.get_running_loop()
    async with websockets.connect(url, max_size=16 << 20) as socket:
        client = Client(socket)
        reading = asyncio.create_task(client.read())

        async def until(kind):
            waiting = asyncio.create_task(client.until(kind))
            await asyncio.wait({waiting, reading}, return_when=asyncio.FIRST_COMPLETED)
            require(waiting.done() or reading.exception() is None, kind, reading.done() and reading.exception())
            return await waiting

        created = await until("session.created")
        require(created["session"]["sglang"]["granted"] is None, created)
        for message, code in EARLY:
            await client.fails(message, code)
        await client.send("session.update", session={"output_modalities": ["audio"], "instructions": "Be brief."})
        updated = await until("session.updated")
        require(updated["client_event_id"] == "session.update-0", updated)
        granted = updated["session"]["sglang"]["granted"]
        for key in ("input_audio_format", "output_audio_format", "native_unit_ms", "turn_control"):
            require(granted[key] == page[key], key, granted, page)
        require(granted["output_modalities"] == ["audio"], granted)
        for message, code in WRONG:
            await client.fails(message, code)
        start = loop.time()
        for at in range(0, len(pcm), 2 * PACKET_SAMPLES):
            await asyncio.sleep(max(0.0, start + at / 2 / RATE_HZ - loop.time()))
            if picture and at == 0:
                with open(picture, "rb") as file:
                    image = base64.b64encode(file.read()).decode()
                await client.send("sglang.input_image.append", image=image, sglang={"t_ms": 0.0})
            await client.append(pcm[at : at + 2 * PACKET_SAMPLES])
            require(not reading.done(), reading.done() and reading.exception())
        await client.send("sglang.input_audio.end")
        ended = await until("sglang.input_audio.ended")
        require(ended["accepted_end_ms"] == len(pcm) / 2 * 1000 / RATE_HZ, ended)
        drained = await until("sglang.input_audio.drained")
        require(drained["consumed_ms"] + drained["discarded_ms"] == drained["accepted_end_ms"], drained)
        require(client.accepted == client.sent, "unacknowledged appends", client.accepted, client.sent)
        require(client.units * 1000 == drained["accepted_end_ms"] + drained["padding_ms"], client.units, drained)
        await client.fails({"type": "input_audio_buffer.append", "event_id": "late", "audio": "AAA=", "sglang": {"seq": client.sent}}, "invalid_state")
        await client.send("session.close")
        closed = await until("session.closed")
        require((closed["reason"], closed["client_event_id"]) == ("client_closed", f"session.close-{client.sent}"), closed)
        await reading
        require(socket.close_code == 1000, socket.close_code)
    client.came["audio"] = base64.b64encode(client.audio).decode()
    return client.came | {"session_id": created["session"]["id"], "units": client.units, "appends": client.accepted}


print(json.dumps(asyncio.run(asyncio.wait_for(talk(*sys.argv[1:]), 90))))
