#!/usr/bin/env python3
"""A plain bridge in Python from Macaw clients to MiniCPM-o's current dialect in audio mode, for comparison with voxbridge.

It has one protocol on each side. It has no transcription, no `tts.speak`, no rollover, no limits and no recovery.

It is about as fast as such a program can be in one file. Each choice is the cheaper one, measured per session and second of
48 kHz audio in 20 ms frames (Python 3.11):

  - uvloop instead of asyncio's own loop.
  - orjson instead of json: 2 us instead of 108 to write a unit, 22 instead of 43 to read a second of speech.
  - Frames are gathered to 100 ms before anything is computed: resampling is 131 us instead of 246 in single frames, the
    voice detector 41 instead of 168. This delays a unit by up to 100 ms.
  - The voice detector is an energy gate over 20 ms (webrtcvad: 85 us at 16 kHz, 669 at 48 kHz).
  - The model's speech is sent at once, one frame per delta. Pacing would take ten frames and ten timers a second.
  - Neither side uses compression.

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

MODEL_RATE_HZ = 16_000  # sample rate of the model's input, Hz; a unit is one second
FULL_SCALE = np.float32(32_768)
VAD_BLOCK_FRAMES = 5  # frames of 20 ms in a block
VAD_THRESHOLD = 0.01**2  # mean square; -40 dBFS, like Macaw's own energy filter
VAD_START_FRAMES, VAD_STOP_FRAMES = 3, 15  # consecutive frames: 60 ms of speech, 300 ms of silence
MAX_MESSAGE_BYTES = 1 << 24
GAP_TIMEOUT_S = 0.4  # longer than the jitter of a network
PROMPT = "You are a helpful assistant."
SESSION_CONFIG = {"length_penalty": 1.1, "listen_prob_scale": 1.0}


class VoiceDetector:
    """Detects the beginning and the end of speech."""

    def __init__(self):
        self.speaking, self.run_length = False, 0

    def detect_changes(self, frames):
        """Yields True for each beginning and False for each end of speech in these frames."""
        loudness = np.einsum("ij,ij->i", frames, frames)
        for loud in (loudness > VAD_THRESHOLD * frames.shape[1]).tolist():
            self.run_length = self.run_length + 1 if loud != self.speaking else 0
            if self.run_length == (VAD_STOP_FRAMES if self.speaking else VAD_START_FRAMES):
                self.speaking, self.run_length = not self.speaking, 0
                yield self.speaking


class UnitAssembler:
    """Converts the client's int16 frames to the model's units of 16000 float32 samples at 16 kHz."""

    def __init__(self, rate_hz):
        self.rate_hz, self.samples_received = rate_hz, 0
        self.block_bytes = 2 * VAD_BLOCK_FRAMES * (rate_hz // 50)
        self.pending_bytes = bytearray()
        self.resampler = None
        if rate_hz != MODEL_RATE_HZ:
            self.resampler = soxr.ResampleStream(rate_hz, MODEL_RATE_HZ, 1, dtype="float32")
        self.vad = VoiceDetector()
        self.unit, self.filled_samples = np.zeros(MODEL_RATE_HZ, np.float32), 0

    def push(self, frame):
        """Adds a frame; returns completed units, and True or False where speech begins or ends."""
        return list(self._process(frame))

    def _process(self, frame):
        self.pending_bytes += frame
        while len(self.pending_bytes) >= self.block_bytes:
            block = np.frombuffer(bytes(self.pending_bytes[: self.block_bytes]), "<i2") / FULL_SCALE
            del self.pending_bytes[: self.block_bytes]
            self.samples_received += len(block)
            yield from self.vad.detect_changes(block.reshape(VAD_BLOCK_FRAMES, -1))
            yield from self.append_samples(self.resampler.resample_chunk(block) if self.resampler else block)

    def flush(self):
        """Returns the rest of the audio, padded with silence to one unit."""
        found = list(self.vad.detect_changes(np.zeros((VAD_STOP_FRAMES, 1), np.float32)))
        rest = np.frombuffer(bytes(self.pending_bytes[: len(self.pending_bytes) & ~1]), "<i2") / FULL_SCALE
        self.pending_bytes.clear()
        self.samples_received += len(rest)
        if self.resampler:
            rest = self.resampler.resample_chunk(rest, last=True)
            self.resampler.clear()
        found += self.append_samples(rest)
        self.unit[self.filled_samples :] = 0
        self.filled_samples = 0
        return [*found, self.unit.copy()]

    def append_samples(self, samples):
        while len(samples):
            taken = samples[: MODEL_RATE_HZ - self.filled_samples]
            self.unit[self.filled_samples : self.filled_samples + len(taken)] = taken
            self.filled_samples += len(taken)
            samples = samples[len(taken) :]
            if self.filled_samples == MODEL_RATE_HZ:
                self.filled_samples = 0
                yield self.unit.copy()

    def position_ms(self):
        return self.samples_received * 1000 // self.rate_hz


def to_int16_bytes(audio):
    """Converts the model's base64 float32 to int16, rounded and clipped."""
    samples = np.frombuffer(base64.b64decode(audio), "<f4") * FULL_SCALE
    return np.clip(np.rint(samples, out=samples), -32_768, 32_767, out=samples).astype("<i2").tobytes()


class Session:
    """One client and its upstream session."""

    def __init__(self, client, upstream_url):
        self.client, self.upstream_url = client, upstream_url
        query = parse_qs(urlsplit(client.request.path).query)
        self.model = query.get("model", [""])[0]
        self.assembler = UnitAssembler(int(query.get("input_sample_rate", ["16000"])[0]))
        self.id = "sess_" + secrets.token_hex(6)
        self.started_at = time.monotonic()
        self.units_sent = self.answer_count = 0
        self.answer = None  # id and text of the current answer

    async def send_event(self, kind, **fields):
        event = {"type": kind, **fields, "timestamp": round(time.time(), 3)}
        await self.client.send(orjson.dumps(event), text=True)

    async def run(self):
        await self.send_event("session.created", session_id=self.id, model=self.model)
        url = self.upstream_url + "?mode=audio"
        async with connect(url, compression=None, max_size=MAX_MESSAGE_BYTES, proxy=None) as upstream:
            await self.open_upstream(upstream)
            tasks = [asyncio.create_task(worker(upstream)) for worker in (self.forward_client, self.forward_upstream, self.fill_gaps)]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(end, str):
                    return await self.close(upstream, end)
                if isinstance(end, Exception):
                    raise end

    async def open_upstream(self, upstream):
        await self.wait_for_event(upstream, "session.queue_done")
        payload = {"system_prompt": PROMPT, "config": SESSION_CONFIG}
        await upstream.send(orjson.dumps({"type": "session.init", "payload": payload}), text=True)
        await self.wait_for_event(upstream, "session.created")

    async def wait_for_event(self, upstream, kind):
        """Skips messages until one of this type, such as positions in the queue."""
        while (event := orjson.loads(await upstream.recv(decode=False)))["type"] != kind:
            if event["type"] in ("session.closed", "error"):
                raise ConnectionError(f"the upstream wanted no session: {event}")

    async def forward_client(self, upstream):
        """Forwards from client to upstream; returns the reason of the end."""
        async for message in self.client:
            if isinstance(message, str):
                command = orjson.loads(message).get("type")
                if command in ("session.close", "session.cancel"):
                    return "client_request" if command == "session.close" else "cancelled"
                continue  # session.configure has no effect here
            await self.deliver(upstream, self.assembler.push(message))
        return "client_disconnect"

    async def fill_gaps(self, upstream):
        """Sends silence in place of missing audio, because the model stops without input, even within a word."""
        while True:
            received = self.assembler.samples_received
            await asyncio.sleep(GAP_TIMEOUT_S)
            if received and self.assembler.samples_received == received:
                await self.deliver(upstream, self.assembler.flush())
                await asyncio.sleep(1 - GAP_TIMEOUT_S)

    async def deliver(self, upstream, findings):
        """Sends units to the model and speech events to the client."""
        for found in findings:
            if isinstance(found, bool):
                name = "vad.speech_start" if found else "vad.speech_end"
                await self.send_event(name, timestamp_ms=self.assembler.position_ms())
            else:
                await self.send_unit(upstream, found)

    async def send_unit(self, upstream, unit):
        # Barge-in: the user speaks while the model answers.
        is_barge_in = self.assembler.vad.speaking and self.answer is not None
        audio = base64.b64encode(unit).decode()
        message = {"audio": audio, "input_id": str(self.units_sent), "force_listen": is_barge_in}
        self.units_sent += 1
        await upstream.send(orjson.dumps({"type": "input.append", "input": message}), text=True)

    async def forward_upstream(self, upstream):
        """Forwards from upstream to client; returns the reason of the end."""
        while True:
            event = orjson.loads(await upstream.recv(decode=False))
            if event["type"] == "session.closed":
                return "upstream_lost"
            kind = event.get("kind")
            if kind == "audio":
                if self.answer is None:
                    await self.start_answer()
                await self.client.send(to_int16_bytes(event["audio"]))
            elif kind == "text":
                if self.answer is None:
                    await self.start_answer()
                self.answer[1].append(event["text"])
                await self.send_event("transcript.partial", text="".join(self.answer[1]), speaker="assistant")
            elif kind == "listen" and self.answer is not None:
                request_id, words = self.answer
                self.answer = None
                await self.send_event("transcript.final", text="".join(words), speaker="assistant")
                await self.send_event("tts.speaking_end", request_id=request_id, cancelled=False)

    async def start_answer(self):
        self.answer_count += 1
        self.answer = f"tts_{self.id[5:]}_{self.answer_count}", []
        await self.send_event("tts.speaking_start", request_id=self.answer[0])

    async def close(self, upstream, reason):
        if reason == "client_request":
            await self.deliver(upstream, self.assembler.flush())
        if reason != "upstream_lost":
            await upstream.send('{"type":"session.close","reason":"user_stop"}')
        if reason != "client_disconnect":
            total_ms = round((time.monotonic() - self.started_at) * 1000)
            await self.send_event("session.closed", reason=reason, total_duration_ms=total_ms, session_id=self.id)


async def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--listen", default="127.0.0.1:8000", help="where clients connect")
    parser.add_argument("--upstream", default="ws://127.0.0.1:8006/v1/realtime", help="the model's gateway")
    options = parser.parse_args()

    async def session(client):
        try:
            await Session(client, options.upstream).run()
        except ConnectionClosed:
            pass  # either side disconnected, which ends the session

    host, _, port = options.listen.rpartition(":")
    # Many clients connect at once; a short queue would reject some.
    async with serve(session, host, int(port), compression=None, max_size=MAX_MESSAGE_BYTES, backlog=1024) as server:
        address = server.sockets[0].getsockname()
        print(f"listening on {address[0]}:{address[1]}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
