"""OpenAI's public Python library with its Live API, unmodified: openai_live.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The library's own types check each event. Prints one JSON object. Cells: conversation (two turns), interruption, error, close.
"""

import asyncio
import base64
import json
import sys
import time

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from openai import AsyncOpenAI
from openai.types.live import ServerEvent
from pydantic import TypeAdapter

RATE = 16000
PIECE_S = 0.05
PATIENCE_S = 25
cell, base_url, recording, heard = sys.argv[1:5]
SESSION = {
    "model": "gpt-live-1",
    "instructions": "Answer briefly.",
    "audio": {"format": {"type": "audio/pcm", "rate": RATE}, "output": {"voice": "marin"}},
}
SCHEMA = TypeAdapter(ServerEvent)


class Talk:
    """A connection whose events are checked and kept, with the time of each."""

    def __init__(self, connection):
        self.connection, self.events = connection, []
        self.receiving = asyncio.create_task(self.receive())

    async def receive(self):
        async for event in self.connection:
            SCHEMA.validate_python(event.model_dump())
            self.events.append((time.monotonic(), event))

    def of(self, kind):
        return [event for _, event in self.events if event.type == kind]

    async def wait(self, kind, count=1):
        """The last of so many events of this type."""
        until = time.monotonic() + PATIENCE_S
        while len(self.of(kind)) < count:
            assert time.monotonic() < until and not self.receiving.done(), (kind, self.kinds(), self.receiving)
            await asyncio.sleep(0.02)
        return self.of(kind)[count - 1]

    def kinds(self):
        return sorted({event.type for _, event in self.events})

    async def send(self, pieces, enough=lambda: False):
        for piece in pieces:
            if enough() or self.receiving.done():
                return
            await self.connection.session.input_audio.append(audio=base64.b64encode(piece).decode())
            await asyncio.sleep(PIECE_S)

    async def ask(self):
        await self.send(sound.pieces(recording, PIECE_S))

    async def be_silent(self, most_s, enough=lambda: False):
        await self.send([bytes(int(2 * RATE * PIECE_S))] * int(most_s / PIECE_S), enough)

    def audio(self, since=0.0):
        deltas = [e.delta for at, e in self.events if e.type == "session.output_audio.delta" and at >= since]
        return b"".join(base64.b64decode(delta) for delta in deltas)

    def last_audio_at(self):
        return max((at for at, e in self.events if e.type == "session.output_audio.delta"), default=0.0)

    def fragments(self, speaker):
        return self.of(f"session.{speaker}_transcript.delta")

    async def close(self):
        await self.connection.session.close()
        closed = await self.wait("session.closed")
        await asyncio.wait([self.receiving], timeout=5)
        return closed.reason == "close_requested" and self.receiving.done() and not self.receiving.exception()


async def converse(talk):
    """Two turns: the words of the second, and that each has a time of its own."""
    ends_ms = []
    for _ in (1, 2):
        since, before = time.monotonic(), [len(talk.fragments(speaker)) for speaker in ("input", "output")]
        new = lambda: [talk.fragments(speaker)[count:] for speaker, count in zip(("input", "output"), before)]

        def is_over():
            quiet_s = time.monotonic() - talk.last_audio_at()
            return all(new()) and len(talk.audio(since)) > 2 * RATE and quiet_s > 1.5

        await talk.ask()
        await talk.be_silent(PATIENCE_S, is_over)
        user, text = ("".join(fragment.delta for fragment in spoken).strip() for spoken in new())
        ends_ms.append([spoken[-1].end_ms for spoken in new()])
    assert all(first < second for first, second in zip(*ends_ms)), ends_ms
    audio = talk.audio(since)
    sound.write(heard, audio, RATE)
    assert await talk.close() and not talk.of("error"), talk.of("error")
    return {"text": text, "user": user, "audio_s": sound.seconds(audio, RATE), "ends_ms": ends_ms}


async def interrupt(talk):
    await talk.ask()
    await talk.be_silent(PATIENCE_S, lambda: len(talk.audio()) > RATE // 2)
    audio_s = sound.seconds(talk.audio(), RATE)
    await talk.ask()
    # The user has spoken for longer than the voice detection takes and the client holds audio.
    since = time.monotonic() - 0.5
    late_s = sound.seconds(talk.audio(since), RATE)
    await talk.close()
    return {"audio_s": audio_s, "stopped": late_s == 0.0, "late_audio_s": late_s}


async def error(talk):
    await talk.connection.response.create(event_id="mine")
    answer = (await talk.wait("error")).error
    assert answer.client_event_id == "mine" and answer.type == "invalid_request_error", answer
    await talk.connection.session.update(session={"delegation": {"type": "client"}})
    await talk.wait("session.updated")
    return {"error": answer.message}


async def close(talk):
    await talk.be_silent(1)
    await talk.connection.session.thinking.append(content="The user is in a hurry.", delegation_id=None)
    await talk.wait("session.thinking.appended")
    return {"clean": await talk.close()}


async def run():
    client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="any")
    async with client.live.connect() as connection:
        talk = Talk(connection)
        await connection.session.start(session=SESSION)
        assert (await talk.wait("session.started")).session.model == "gpt-live-1"
        cells = {"conversation": converse, "interruption": interrupt, "error": error, "close": close}
        return await cells[cell](talk)


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
