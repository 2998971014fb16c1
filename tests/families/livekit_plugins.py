"""LiveKit Agents' plugins, unmodified: livekit_plugins.py PLUGIN CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The plugins stand in `PLUGINS`; all options but address and key have their defaults. Prints one JSON object. Cells: transcription (two
turns), error and close of speech to text; speech (two texts) of text to speech; conversation of models that hear and speak.
"""

import asyncio
import json
import logging
import os
import sys

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
from google.genai.types import HttpOptions
from livekit import rtc
from livekit.agents import APIConnectOptions, stt, tts
from livekit.agents.utils import http_context
from livekit.plugins import assemblyai, cartesia, deepgram, elevenlabs, gladia, google, soniox, speechmatics

logging.disable()
RATE = 16000
PIECE_S = 0.02
PATIENCE_S = 20
plugin, cell, base_url, recording, heard, text = sys.argv[1:7]
ws_url = base_url.replace("http", "ws", 1)
ONE_ATTEMPT = APIConnectOptions(max_retry=0, timeout=10)


def api(service, **address):
    """A plugin's class with address and key, to which a cell may add options."""
    return lambda **options: service(api_key="any", **address, **options)


PLUGINS = {
    "assemblyai": api(assemblyai.STT, base_url=ws_url),
    "cartesia": api(cartesia.STT, base_url=base_url),
    "cartesia_whisper": api(cartesia.STT, base_url=base_url, model="ink-whisper"),
    "cartesia_tts": api(cartesia.TTS, base_url=base_url),
    "deepgram": api(deepgram.STT, base_url=f"{base_url}/v1/listen"),
    "deepgram_flux": api(deepgram.STTv2, base_url=f"{ws_url}/v2/listen"),
    "deepgram_flux_tts": api(deepgram.TTSv2, base_url=f"{ws_url}/v2/speak"),
    "deepgram_tts": api(deepgram.TTS, base_url=f"{base_url}/v1/speak"),
    "elevenlabs": api(elevenlabs.STT, base_url=f"{base_url}/v1", model="scribe_v2_realtime"),
    "elevenlabs_tts": api(elevenlabs.TTS, base_url=f"{base_url}/v1"),
    "gemini": api(google.realtime.RealtimeModel, http_options=HttpOptions(base_url=base_url)),
    "gladia": api(gladia.STT, base_url=f"{base_url}/v2/live"),
    "soniox": api(soniox.STT, base_url=f"{ws_url}/transcribe-websocket"),
    "soniox_tts": api(soniox.TTS, websocket_url=f"{ws_url}/tts-websocket"),
    "speechmatics": api(speechmatics.STT, base_url=f"{ws_url}/v2/agent"),
    "speechmatics_tts": api(speechmatics.TTS, base_url=base_url),
}

# Options that the vendor does not have.
MISTAKES = {
    "assemblyai": {"end_of_turn_confidence_threshold": 2.0},
    "cartesia": {"turn_eager_end_threshold": 0.9},
    "deepgram": {"endpointing_ms": -5},
    "deepgram_flux": {"eot_threshold": 2.0},
    "elevenlabs": {"server_vad": {"vad_silence_threshold_secs": 99}},
    "gladia": {"bit_depth": 24},
    "soniox": {"params": soniox.STTOptions(num_channels=20)},
}

# These wait until they are closed: ElevenLabs ends no session at the end of the audio, and the plugin for Soniox does not tell it.
OPEN_ENDED = ["elevenlabs", "soniox"]


def frame_of(audio):
    return rtc.AudioFrame(data=audio, sample_rate=RATE, num_channels=1, samples_per_channel=len(audio) // 2)


class Listening:
    """A stream of speech to text, and what its user sees."""

    def __init__(self, service):
        self.service, self.errors, self.finals, self.interim = service, [], [], 0
        service.on("error", lambda event: self.errors.append(str(event.error)))
        self.stream = service.stream(conn_options=ONE_ATTEMPT)
        self.receiving = asyncio.create_task(self.receive())

    async def receive(self):
        async for event in self.stream:
            if event.type == stt.SpeechEventType.INTERIM_TRANSCRIPT:
                self.interim += 1
            elif event.type == stt.SpeechEventType.FINAL_TRANSCRIPT and event.alternatives[0].text:
                self.finals.append(event.alternatives[0].text.strip())

    async def send(self, pieces, enough=lambda: False):
        """Audio as fast as speech, until there is enough or the stream has ended."""
        for piece in pieces:
            if enough() or self.receiving.done():
                return
            self.stream.push_frame(frame_of(piece))
            await asyncio.sleep(PIECE_S)

    async def be_silent(self, most_s, enough=lambda: False):
        piece = bytes(2 * int(RATE * PIECE_S))
        await self.send([piece] * int(most_s / PIECE_S), enough)

    async def turn(self):
        """The words of a turn."""
        before = len(self.finals)
        await self.send(sound.pieces(recording, PIECE_S))
        if self.service.capabilities.manual_flush:
            await self.be_silent(0.3)
            self.stream.flush()
        await self.be_silent(PATIENCE_S, lambda: len(self.finals) > before)
        await self.be_silent(1)
        return " ".join(self.finals[before:])

    async def end(self):
        """Whether the stream ends after its audio, without an error."""
        if plugin not in OPEN_ENDED and not self.receiving.done():
            self.stream.end_input()
            await asyncio.wait([self.receiving], timeout=8)
        has_ended = self.receiving.done() or plugin in OPEN_ENDED
        await self.stream.aclose()
        return has_ended and not self.errors


async def listen():
    listening = Listening(PLUGINS[plugin](**(MISTAKES[plugin] if cell == "error" else {})))
    if cell == "error":
        await listening.be_silent(PATIENCE_S, lambda: listening.errors)
        return {"error": "; ".join(listening.errors)}
    if cell == "close":
        await listening.be_silent(1)
        return {"clean": await listening.end(), "errors": listening.errors}
    turns = [await listening.turn(), await listening.turn()]
    assert await listening.end(), (turns, listening.errors)
    assert listening.interim, "no interim transcript"
    return {"turns": turns, "interim": listening.interim}


async def say(service):
    """A text in pieces, as a model writes it; all at once where the plugin wants that."""
    if service.capabilities.streaming:
        stream = service.stream(conn_options=ONE_ATTEMPT)
        for word in text.split():
            stream.push_text(word + " ")
        stream.end_input()
    else:
        stream = service.synthesize(text, conn_options=ONE_ATTEMPT)
    async with stream:
        frames = [event.frame async for event in stream]
    return b"".join(bytes(frame.data) for frame in frames), frames[0].sample_rate


async def speak():
    service = PLUGINS[plugin]()
    audio, rate_hz = await say(service)
    second, _ = await say(service)
    await service.aclose()
    lengths = sound.seconds(audio, rate_hz), sound.seconds(second, rate_hz)
    assert abs(lengths[0] - lengths[1]) < 0.2, lengths
    sound.write(heard, audio, rate_hz)
    return {"audio_s": lengths[0]}


class Conversation:
    """A session of a model that hears and speaks, until it has answered."""

    def __init__(self, session):
        self.session, self.user, self.words, self.frames, self.errors = session, "", [], [], []
        self.playing, self.answered = None, asyncio.Event()
        session.on("input_audio_transcription_completed", lambda event: setattr(self, "user", event.transcript))
        session.on("error", lambda event: self.errors.append(str(event.error)))
        session.on("generation_created", self.begin_answer)

    def begin_answer(self, generation):
        self.playing = asyncio.create_task(self.play(generation))

    async def play(self, generation):
        async for message in generation.message_stream:
            words, frames = await asyncio.gather(collect(message.text_stream), collect(message.audio_stream))
            self.words += words
            self.frames += frames
        self.answered.set()

    async def ask(self):
        silence = [bytes(2 * int(RATE * PIECE_S))] * int(2 * PATIENCE_S / PIECE_S)
        for piece in [*sound.pieces(recording, PIECE_S), *silence]:
            if self.answered.is_set() or self.errors:
                return
            self.session.push_audio(frame_of(piece))
            await asyncio.sleep(PIECE_S)


async def collect(stream):
    return [item async for item in stream]


async def converse():
    session = PLUGINS[plugin]().session()
    talk = Conversation(session)
    await talk.ask()
    await session.aclose()
    assert talk.frames and not talk.errors, talk.errors
    audio = b"".join(bytes(frame.data) for frame in talk.frames)
    sound.write(heard, audio, talk.frames[0].sample_rate)
    audio_s = sound.seconds(audio, talk.frames[0].sample_rate)
    return {"text": "".join(talk.words).strip(), "user": talk.user.strip(), "audio_s": audio_s}


async def run():
    cells = {"speech": speak, "conversation": converse}
    async with http_context.open():
        return await cells.get(cell, listen)()


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
# Some plugins leave threads and connections behind.
os._exit(0)
