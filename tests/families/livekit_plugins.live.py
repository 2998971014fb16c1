"""LiveKit's model for OpenAI's Live API, unmodified: livekit_plugins.live.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The session stands behind the adapter with which agents use it. Prints one JSON object. Cells: conversation (two turns), close.
"""

import asyncio
import json
import logging
import os
import sys

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from livekit import rtc
from livekit.agents.llm import ChatContext
from livekit.agents.llm.duplex_adapter import DuplexRealtimeAdapter
from livekit.agents.utils import http_context
from livekit.plugins.openai.realtime import GPTLiveModel

logging.disable()
RATE = 16000
PIECE_S = 0.02
PATIENCE_S = 25
cell, base_url, recording, heard = sys.argv[1:5]


class Talk:
    """A session, and what its user sees: transcripts of both, and the audio of each answer."""

    def __init__(self):
        model = GPTLiveModel(api_key="any", base_url=f"{base_url}/v1")
        self.session = DuplexRealtimeAdapter(model).session()
        self.users, self.answers, self.errors, self.closed, self.playing = [], [], [], None, []
        self.session.on("input_audio_transcription_completed", self.note_user)
        self.session.on("generation_created", lambda event: self.playing.append(asyncio.create_task(self.play(event))))
        self.session.on("error", lambda event: self.errors.append(str(event.error)))
        self.session.duplex_session.on("openai_server_event_received", self.note_event)

    def note_user(self, event):
        if event.is_final:
            self.users.append(event.transcript.strip())

    def note_event(self, event):
        if event["type"] == "session.closed":
            self.closed = event["reason"]
        if event["type"] == "error":
            self.errors.append(event["error"]["message"])

    async def play(self, generation):
        async for message in generation.message_stream:
            words, frames = await asyncio.gather(collect(message.text_stream), collect(message.audio_stream))
            self.answers.append(("".join(words).strip(), frames))

    async def start(self):
        await self.session._update_session(instructions="Answer briefly.", chat_ctx=ChatContext.empty(), tools=[])

    async def send(self, pieces, enough=lambda: False):
        for piece in pieces:
            if enough() or self.errors:
                return
            self.session.push_audio(rtc.AudioFrame(piece, RATE, 1, len(piece) // 2))
            await asyncio.sleep(PIECE_S)

    async def turn(self, number):
        """Asks, and waits for the words of both."""
        await self.send(sound.pieces(recording, PIECE_S))
        silence = [bytes(2 * int(RATE * PIECE_S))] * int(PATIENCE_S / PIECE_S)
        await self.send(silence, lambda: len(self.answers) >= number and len(self.users) >= number)


async def collect(stream):
    return [item async for item in stream]


async def converse():
    talk = Talk()
    await talk.start()
    for number in (1, 2):
        await talk.turn(number)
    await talk.session.aclose()
    seen = talk.users, [words for words, _ in talk.answers], talk.errors
    assert len(talk.users) == len(talk.answers) == 2 and not talk.errors, seen
    # Words of one turn in the other's message would make it longer.
    assert all(len(first) < 1.5 * len(second) + 10 for first, second in [talk.users, talk.users[::-1]]), seen
    words, frames = talk.answers[1]
    audio, rate_hz = b"".join(bytes(frame.data) for frame in frames), frames[0].sample_rate
    sound.write(heard, audio, rate_hz)
    return {"text": words, "user": talk.users[1], "audio_s": sound.seconds(audio, rate_hz)}


async def close():
    talk = Talk()
    await talk.start()
    await talk.send([bytes(2 * int(RATE * PIECE_S))] * 50)
    await asyncio.wait_for(talk.session.aclose(), 4)
    return {"clean": talk.closed == "close_requested" and not talk.errors, "reason": talk.closed}


async def run():
    async with http_context.open():
        return await {"conversation": converse, "close": close}[cell]()


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
# The plugin leaves threads behind.
os._exit(0)
