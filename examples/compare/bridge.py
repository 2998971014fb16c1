#!/usr/bin/env python3
"""A bridge from Macaw clients to MiniCPM-o's current dialect in audio mode, written plainly in Python: what voxbridge is
measured against. It is not a second voxbridge: it has one protocol on each side, no transcription, no `tts.speak`, no
rollover, no limits and no recovery.

It is as quick as such a program gets in one file. Wherever there was a choice, the cheaper one was taken, measured for one
session and second of 48 kHz audio in 20 ms frames (Python 3.11):

  - uvloop instead of asyncio's own loop.
  - orjson instead of json: 2 us instead of 108 to write a unit, 22 instead of 43 to read a second of speech.
  - Frames are gathered to 100 ms before anything is computed: resampling is 131 us instead of 246 in single frames, the
    voice detector 41 instead of 168. A unit may reach the model so much later.
  - The voice detector is an energy gate over 20 ms (webrtcvad: 85 us at 16 kHz, 669 at 48 kHz).
  - The model's speech goes out at once and in one frame a delta; pacing it would be ten frames and ten timers a second.
  - Neither side is compressed.

Usage: bridge.py --listen HOST:PORT --upstream ws://HOST:PORT/v1/realtime
"""

import argparse
import asyncio
import base64
import secrets
import time
from urllib.parse import parse_qs, urlsplit

import numpy as np
import orjson
import soxr
import uvloop
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

MODEL_RATE = 16_000  # of what the model hears, Hz; a unit is a second
FULL_SCALE = np.float32(32_768)
VAD_FRAMES = 5  # of 20 ms in a block
VAD_FLOOR = 0.01**2  # mean square; -40 dBFS, as of Macaw's own energy filter
VAD_START, VAD_STOP = 3, 15  # frames in a row: 60 ms of speech, 300 ms without
MESSAGE_MAX = 1 << 24
GAP_S = 0.4  # jitter of a network is shorter
PROMPT = "You are a helpful assistant."
CONFIG = {"length_penalty": 1.1, "listen_prob_scale": 1.0}


class Vad:
    """Finds where speech begins and ends."""

    def __init__(self):
        self.speaking, self.run = False, 0

    def hear(self, frames):
        """Yields what changed in some frames, one a row: True for a beginning, False for an end."""
        loudness = np.einsum("ij,ij->i", frames, frames)
        for loud in (loudness > VAD_FLOOR * frames.shape[1]).tolist():
            self.run = self.run + 1 if loud != self.speaking else 0
            if self.run == (VAD_STOP if self.speaking else VAD_START):
                self.speaking, self.run = not self.speaking, 0
                yield self.speaking


class Ear:
    """Turns the client's int16 frames into the model's units: 16000 samples of float32 at 16 kHz."""

    def __init__(self, rate):
        self.rate, self.heard = rate, 0
        self.block_bytes = 2 * VAD_FRAMES * (rate // 50)
        self.bytes = bytearray()
        self.resampler = None
        if rate != MODEL_RATE:
            self.resampler = soxr.ResampleStream(rate, MODEL_RATE, 1, dtype="float32")
        self.vad = Vad()
        self.unit, self.filled = np.zeros(MODEL_RATE, np.float32), 0

    def hear(self, frame):
        """What comes of a frame: units, and True or False where speech begins or ends."""
        return list(self.found_in(frame))

    def found_in(self, frame):
        self.bytes += frame
        while len(self.bytes) >= self.block_bytes:
            block = np.frombuffer(bytes(self.bytes[: self.block_bytes]), "<i2") / FULL_SCALE
            del self.bytes[: self.block_bytes]
            self.heard += len(block)
            yield from self.vad.hear(block.reshape(VAD_FRAMES, -1))
            yield from self.fill(self.resampler.resample_chunk(block) if self.resampler else block)

    def pause(self):
        """What comes of audio that ends here: what is left of it, filled up to a unit, which may be silence only."""
        found = list(self.vad.hear(np.zeros((VAD_STOP, 1), np.float32)))
        rest = np.frombuffer(bytes(self.bytes[: len(self.bytes) & ~1]), "<i2") / FULL_SCALE
        self.bytes.clear()
        self.heard += len(rest)
        if self.resampler:
            rest = self.resampler.resample_chunk(rest, last=True)
            self.resampler.clear()
        found += self.fill(rest)
        self.unit[self.filled :] = 0
        self.filled = 0
        return [*found, self.unit.copy()]

    def fill(self, samples):
        while len(samples):
            taken = samples[: MODEL_RATE - self.filled]
            self.unit[self.filled : self.filled + len(taken)] = taken
            self.filled += len(taken)
            samples = samples[len(taken) :]
            if self.filled == MODEL_RATE:
                self.filled = 0
                yield self.unit.copy()

    def now_ms(self):
        return self.heard * 1000 // self.rate


def int16(audio):
    """The model's base64 float32 as int16: rounded, and clipped instead of wrapped."""
    samples = np.frombuffer(base64.b64decode(audio), "<f4") * FULL_SCALE
    return np.clip(np.rint(samples, out=samples), -32_768, 32_767, out=samples).astype("<i2").tobytes()


class Session:
    """One client and its upstream session."""

    def __init__(self, client, upstream_url):
        self.client, self.upstream_url = client, upstream_url
        query = parse_qs(urlsplit(client.request.path).query)
        self.model = query.get("model", [""])[0]
        self.ear = Ear(int(query.get("input_sample_rate", ["16000"])[0]))
        self.id = "sess_" + secrets.token_hex(6)
        self.begun = time.monotonic()
        self.units = self.answers = 0
        self.answer = None  # id and words of what the model is saying

    async def tell(self, kind, **fields):
        event = {"type": kind, **fields, "timestamp": round(time.time(), 3)}
        await self.client.send(orjson.dumps(event), text=True)

    async def run(self):
        await self.tell("session.created", session_id=self.id, model=self.model)
        url = self.upstream_url + "?mode=audio"
        async with connect(url, compression=None, max_size=MESSAGE_MAX, proxy=None) as upstream:
            await self.open(upstream)
            tasks = [asyncio.create_task(work(upstream)) for work in (self.listen, self.speak, self.fill_gaps)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(end, str):
                    return await self.end(upstream, end)
                if isinstance(end, Exception):
                    raise end

    async def open(self, upstream):
        await self.wait_for(upstream, "session.queue_done")
        payload = {"system_prompt": PROMPT, "config": CONFIG}
        await upstream.send(orjson.dumps({"type": "session.init", "payload": payload}), text=True)
        await self.wait_for(upstream, "session.created")

    async def wait_for(self, upstream, kind):
        """Passes what comes before, such as places in the queue."""
        while (event := orjson.loads(await upstream.recv(decode=False)))["type"] != kind:
            if event["type"] in ("session.closed", "error"):
                raise ConnectionError(f"the upstream wanted no session: {event}")

    async def listen(self, upstream):
        """Client to upstream; returns why it ended."""
        async for message in self.client:
            if isinstance(message, str):
                command = orjson.loads(message).get("type")
                if command in ("session.close", "session.cancel"):
                    return "client_request" if command == "session.close" else "cancelled"
                continue  # session.configure: nothing in it changes what is done here
            await self.tell_all(upstream, self.ear.hear(message))
        return "client_disconnect"

    async def fill_gaps(self, upstream):
        """A model stands still without audio, in the middle of a word too: silence takes the place of what does not come."""
        while True:
            heard = self.ear.heard
            await asyncio.sleep(GAP_S)
            if heard and self.ear.heard == heard:
                await self.tell_all(upstream, self.ear.pause())
                await asyncio.sleep(1 - GAP_S)

    async def tell_all(self, upstream, findings):
        """The client where it speaks, and the model what it says."""
        for found in findings:
            if isinstance(found, bool):
                name = "vad.speech_start" if found else "vad.speech_end"
                await self.tell(name, timestamp_ms=self.ear.now_ms())
            else:
                await self.append(upstream, found)

    async def append(self, upstream, unit):
        # Who speaks while the model does has the floor.
        interrupts = self.ear.vad.speaking and self.answer is not None
        audio = base64.b64encode(unit).decode()
        message = {"audio": audio, "input_id": str(self.units), "force_listen": interrupts}
        self.units += 1
        await upstream.send(orjson.dumps({"type": "input.append", "input": message}), text=True)

    async def speak(self, upstream):
        """Upstream to client; returns why it ended."""
        while True:
            event = orjson.loads(await upstream.recv(decode=False))
            if event["type"] == "session.closed":
                return "upstream_lost"
            kind = event.get("kind")
            if kind == "audio":
                if self.answer is None:
                    await self.begin_answer()
                await self.client.send(int16(event["audio"]))
            elif kind == "text":
                if self.answer is None:
                    await self.begin_answer()
                self.answer[1].append(event["text"])
                await self.tell("transcript.partial", text="".join(self.answer[1]), speaker="assistant")
            elif kind == "listen" and self.answer is not None:
                request_id, words = self.answer
                self.answer = None
                await self.tell("transcript.final", text="".join(words), speaker="assistant")
                await self.tell("tts.speaking_end", request_id=request_id, cancelled=False)

    async def begin_answer(self):
        self.answers += 1
        self.answer = f"tts_{self.id[5:]}_{self.answers}", []
        await self.tell("tts.speaking_start", request_id=self.answer[0])

    async def end(self, upstream, reason):
        if reason == "client_request":
            await self.tell_all(upstream, self.ear.pause())
        if reason != "upstream_lost":
            await upstream.send('{"type":"session.close","reason":"user_stop"}')
        if reason != "client_disconnect":
            total_ms = round((time.monotonic() - self.begun) * 1000)
            await self.tell("session.closed", reason=reason, total_duration_ms=total_ms, session_id=self.id)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--listen", default="127.0.0.1:8000", help="where clients connect")
    parser.add_argument("--upstream", default="ws://127.0.0.1:8006/v1/realtime", help="the model's gateway")
    options = parser.parse_args()

    async def session(client):
        try:
            await Session(client, options.upstream).run()
        except ConnectionClosed:
            pass  # of either side, which ends the session

    host, _, port = options.listen.rpartition(":")
    # So many connect at once that a short queue would turn some away.
    async with serve(session, host, int(port), compression=None, max_size=MESSAGE_MAX, backlog=1024) as server:
        address = server.sockets[0].getsockname()
        print(f"listening on {address[0]}:{address[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
