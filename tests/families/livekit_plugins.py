"""LiveKit Agents' plugins, unmodified: livekit_plugins.py PLUGIN CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The plugins stand in `PLUGINS`; all options but address and key have their defaults. Prints one JSON object. Cells: transcription (two
turns), error and close of speech to text; speech (three texts) and error of text to speech; conversation (two turns), error and close
of models that hear and speak.
"""

import asyncio
import difflib
import json
import logging
import os
import sys
import types

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
# Alibaba's plugin cuts texts into sentences with it, for a service that is not used here.
sys.modules["osc_data"] = types.ModuleType("osc_data")
sys.modules["osc_data.text_stream"] = types.ModuleType("osc_data.text_stream")
sys.modules["osc_data.text_stream"].TextStreamSentencizer = None
from google.genai.types import HttpOptions
from livekit import rtc
from livekit.agents import APIConnectOptions, APIError, llm, stt, tts
from livekit.agents.llm.duplex_adapter import DuplexRealtimeAdapter
from livekit.agents.utils import http_context
from livekit.plugins import aliyun, assemblyai, cartesia, deepgram, elevenlabs, gladia, google, openai, soniox, speechmatics
from livekit.plugins.speechmatics import TurnDetectionMode
from openai.types.realtime.realtime_audio_input_turn_detection import ServerVad

logging.disable()
RATE = 16000
PIECE_S = 0.02
PATIENCE_S = 20
plugin, cell, base_url, recording, heard, text = sys.argv[1:7]
ws_url = base_url.replace("http", "ws", 1)
ONE_ATTEMPT = APIConnectOptions(max_retry=0, timeout=10)


def api(service, **address):
    """A plugin's class with address and key, to which a cell may add options."""
    return lambda **options: service(**{"api_key": "any", **address, **options})


def live(**options):
    """A model of full duplex, behind the adapter with which agents use it."""
    return DuplexRealtimeAdapter(openai.realtime.GPTLiveModel(**options))


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
    "elevenlabs_dialogue": api(elevenlabs.TTS, base_url=f"{base_url}/v1", model="eleven_v3"),
    "elevenlabs_tts": api(elevenlabs.TTS, base_url=f"{base_url}/v1"),
    "gemini": api(google.realtime.RealtimeModel, http_options=HttpOptions(base_url=base_url)),
    "gladia": api(gladia.STT, base_url=f"{base_url}/v2/live"),
    "openai_live": api(live, base_url=f"{base_url}/v1"),
    "openai_realtime": api(openai.realtime.RealtimeModel, base_url=f"{base_url}/v1"),
    "openai_stt": api(openai.STT, base_url=f"{base_url}/v1", use_realtime=True),
    "qwen_omni": api(aliyun.realtime.RealtimeModel, base_url=f"{ws_url}/api-ws/v1/realtime"),
    "soniox": api(soniox.STT, base_url=f"{ws_url}/transcribe-websocket"),
    "soniox_tts": api(soniox.TTS, websocket_url=f"{ws_url}/tts-websocket"),
    "speechmatics": api(speechmatics.STT, base_url=f"{ws_url}/v2/agent"),
    "speechmatics_vad": api(
        speechmatics.STT, base_url=f"{ws_url}/v2/agent", turn_detection_mode=TurnDetectionMode.VAD
    ),
    "speechmatics_tts": api(speechmatics.TTS, base_url=base_url),
}

# Options that the vendor does not have.
MISTAKES = {
    "assemblyai": {"end_of_turn_confidence_threshold": 2.0},
    "cartesia": {"turn_eager_end_threshold": 0.9},
    "cartesia_whisper": {"encoding": "pcm_s24le"},
    "deepgram": {"endpointing_ms": -5},
    "deepgram_flux": {"eot_threshold": 2.0},
    "deepgram_flux_tts": {"sample_rate": 7},
    "deepgram_tts": {"sample_rate": 7},
    "elevenlabs": {"server_vad": {"vad_silence_threshold_secs": 99}},
    "gemini": {"temperature": 99},
    "gladia": {"bit_depth": 24},
    "openai_realtime": {"turn_detection": ServerVad(type="server_vad", threshold=9)},
    "openai_stt": {"turn_detection": {"type": "server_vad", "threshold": 9}},
    "soniox": {"params": soniox.STTOptions(num_channels=20)},
    "soniox_tts": {"sample_rate": 7},
    "speechmatics": {"additional_vocab": [{"word": "x"}]},
    "speechmatics_tts": {"sample_rate": 7},
    "speechmatics_vad": {"additional_vocab": [{"word": "x"}]},
}

# These wait until they are closed: ElevenLabs ends no session at the end of the audio, and the others' plugins do not tell it.
OPEN_ENDED = ["elevenlabs", "openai_stt", "soniox"]


def frame_of(audio):
    return rtc.AudioFrame(data=audio, sample_rate=RATE, num_channels=1, samples_per_channel=len(audio) // 2)


class Listening:
    """A stream of speech to text, and what its user sees."""

    def __init__(self, service):
        self.service, self.errors, self.kinds, self.finals, self.interim = service, [], [], [], 0
        service.on("error", lambda event: self.errors.append(str(event.error)))
        self.stream = service.stream(conn_options=ONE_ATTEMPT)
        self.receiving = asyncio.create_task(self.receive())

    async def receive(self):
        async for event in self.stream:
            if event.type == stt.SpeechEventType.INTERIM_TRANSCRIPT:
                self.interim += 1
            else:
                self.kinds.append(event.type.value)
            if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT and event.alternatives[0].text:
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
        before, kinds = len(self.finals), len(self.kinds)
        await self.send(sound.pieces(recording, PIECE_S))
        await self.be_silent(0.3)
        if self.service.capabilities.manual_flush:
            self.stream.flush()
        elif plugin == "speechmatics":
            # The application says when a turn ends, as the plugin finds no detector of its own.
            assert "end_of_speech" not in self.kinds[kinds:], "the turn ended before the application said so"
            self.service.finalize()
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


async def listen(service):
    listening = Listening(service)
    turns = [await listening.turn(), await listening.turn()]
    assert await listening.end(), (turns, listening.errors)
    assert listening.interim, "no interim transcript"
    return {"turns": turns, "interim": listening.interim}


async def say(service, text):
    """Audio and sample rate of a text, given in pieces, as a model writes it, or all at once where the plugin wants that."""
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


async def speak(service):
    """A text, and two at once."""
    audio, rate_hz = await say(service, text)
    (second, _), (longer, _) = await asyncio.gather(say(service, text), say(service, f"{text} {text}"))
    await service.aclose()
    length, *others = [sound.seconds(audio, rate_hz) for audio in [audio, second, longer]]
    assert abs(others[0] - length) < 0.2 and others[1] > 1.7 * length, (length, others)
    sound.write(heard, audio, rate_hz)
    return {"audio_s": length}


class Conversation:
    """A session of a model that hears and speaks."""

    def __init__(self, session):
        self.session, self.errors, self.playing, self.answered = session, [], None, asyncio.Event()
        self.forget()
        session.on("input_audio_transcription_completed", lambda event: setattr(self, "user", event.transcript))
        session.on("error", lambda event: self.errors.append(str(event.error)))
        session.on("generation_created", self.begin_answer)

    def forget(self):
        self.user, self.words, self.frames = "", [], []
        self.answered.clear()

    def begin_answer(self, generation):
        self.playing = asyncio.create_task(self.play(generation))

    async def play(self, generation):
        async for message in generation.message_stream:
            words, frames = await asyncio.gather(collect(message.text_stream), collect(message.audio_stream))
            self.words += words
            self.frames += frames
        self.answered.set()

    async def send(self, pieces, enough=lambda: False):
        """Audio as fast as speech, until there is enough or an error."""
        for piece in pieces:
            if enough() or self.errors:
                return
            self.session.push_audio(frame_of(piece))
            await asyncio.sleep(PIECE_S)

    async def be_silent(self, most_s, enough=lambda: False):
        await self.send([bytes(2 * int(RATE * PIECE_S))] * int(most_s / PIECE_S), enough)

    async def ask(self):
        """Audio and words of an answer, and the words of the user."""
        self.forget()
        await self.send(sound.pieces(recording, PIECE_S))
        await self.be_silent(PATIENCE_S, self.answered.is_set)
        await self.be_silent(1)
        audio = b"".join(bytes(frame.data) for frame in self.frames)
        return audio, "".join(self.words).strip(), self.user.strip()

    async def end(self):
        """Whether the session ends soon, and had no error."""
        _, pending = await asyncio.wait([asyncio.create_task(self.session.aclose())], timeout=8)
        return not pending and not self.errors


async def open_session(model):
    conversation = Conversation(model.session())
    # Agents do this first, and models of full duplex begin with it.
    chat = llm.ChatContext.empty()
    await conversation.session._update_session(instructions="Answer briefly.", chat_ctx=chat, tools=[])
    return conversation


async def collect(stream):
    return [item async for item in stream]


async def converse(model):
    conversation = await open_session(model)
    audio, words, user = await conversation.ask()
    rate_hz = conversation.frames[0].sample_rate if audio else 0
    second = await conversation.ask()
    assert await conversation.end(), conversation.errors
    likeness = difflib.SequenceMatcher(None, words, second[1]).ratio()
    assert audio and second[0] and likeness > 0.8, (words, second[1:])
    sound.write(heard, audio, rate_hz)
    return {"text": words, "user": user, "audio_s": sound.seconds(audio, rate_hz)}


async def fail(service):
    """The errors that the user of a plugin is shown."""
    if isinstance(service, tts.TTS):
        try:
            await say(service, text)
        except APIError as problem:
            return {"error": f"{problem}: {problem.body}"}
        return {}
    running = await open_session(service) if isinstance(service, llm.RealtimeModel) else Listening(service)
    await running.be_silent(PATIENCE_S, lambda: running.errors)
    return {"error": "; ".join(running.errors)}


async def close(service):
    running = await open_session(service) if isinstance(service, llm.RealtimeModel) else Listening(service)
    await running.be_silent(1)
    return {"clean": await running.end(), "errors": running.errors}


CELLS = {"close": close, "conversation": converse, "error": fail, "speech": speak, "transcription": listen}


async def run():
    async with http_context.open():
        return await CELLS[cell](PLUGINS[plugin](**(MISTAKES[plugin] if cell == "error" else {})))


print(json.dumps(asyncio.run(asyncio.wait_for(run(), 80))), flush=True)
# Some plugins leave threads and connections behind.
os._exit(0)
