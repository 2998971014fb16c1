"""The provider's end of a phone call, for the families of telephone media streams. A script of a family describes how its provider
spells things and calls `run`:

    FAMILY.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The caller says the recording in real time. A buffer plays what comes back in real time, too: a mark returns when the audio before it
was played, and a clear empties the buffer. HEARD.wav is what the caller heard, int16 at 16 kHz. pipecat's unmodified serializers, made
for the server's end, judge the messages in both directions: they must read what the provider sends, and voxbridge must spell its
messages as they do. They are in target/clients/pipecat, which tests/clients/setup installs.
"""

import asyncio
import json
import pathlib
import sys
import types
import wave

CLIENTS = pathlib.Path(__file__).resolve().parents[2] / "target" / "clients"
sys.path += [str(CLIENTS / name) for name in ("pipecat", "aiohttp", "websockets-17.4")]

import audioop  # noqa: E402  # of the library, or of audioop-lts from Python 3.13 on

from websockets.asyncio.client import connect  # noqa: E402
from websockets.exceptions import ConnectionClosed  # noqa: E402

RATE = 16000
FRAME_BYTES = 640  # 20 ms
PATIENCE_S = 25


class Provider:
    """How a provider spells a call. `rate` and `encoding` are those of its audio."""

    path = "/"
    rate = 8000
    encoding = "mulaw"
    subprotocols = None
    returns_marks = True
    serializer = None

    def __init__(self):
        self.to_caller = None
        self.from_caller = None

    async def prepare(self):
        """Sets up the serializer."""

    def first_messages(self, parameters):
        """The messages with which a call begins."""
        return []

    def broken_start(self):
        """A first message with a format that nobody serves."""
        raise NotImplementedError

    def media(self, audio):
        """A message with audio of the caller."""
        return audio

    def read(self, message):
        """What a message of the server is: ("audio", bytes), ("mark", name), ("clear", None), ("stop", None) or
        ("nothing", None)."""
        raise NotImplementedError

    def mark(self, name, cleared):
        """The message that returns a mark; None for a provider that does not return those that it cleared."""
        return None

    def dtmf(self):
        """The message about a key press."""
        return None

    def last_message(self):
        """The message about the end of the call; None for a provider that closes the socket."""
        return None

    def encode(self, pcm):
        pcm, self.from_caller = audioop.ratecv(pcm, 2, 1, RATE, self.rate, self.from_caller)
        match self.encoding:
            case "mulaw":
                return audioop.lin2ulaw(pcm, 2)
            case "alaw":
                return audioop.lin2alaw(pcm, 2)
        return pcm

    def decode(self, audio):
        match self.encoding:
            case "mulaw":
                audio = audioop.ulaw2lin(audio, 2)
            case "alaw":
                audio = audioop.alaw2lin(audio, 2)
        pcm, self.to_caller = audioop.ratecv(audio, 2, 1, self.rate, RATE, self.to_caller)
        return pcm

    async def judge_sent(self, message):
        """pipecat's serializer reads the provider's audio."""
        if self.serializer:
            frame = await self.serializer.deserialize(message)
            assert frame is None or len(frame.audio) % 2 == 0, frame  # None while its resampler fills

    async def judge_received(self, kind, message):
        """voxbridge spells its messages as pipecat's serializer does."""
        if self.serializer and kind in ("audio", "clear"):
            from pipecat.frames.frames import InterruptionFrame, OutputAudioRawFrame

            frame = InterruptionFrame() if kind == "clear" else OutputAudioRawFrame(bytes(6400), RATE, 1)
            expected = await self.serializer.serialize(frame)
            assert shape(message) == shape(expected), f"{message[:200]} is spelled {expected[:200]} by pipecat"


class Call:
    """One call."""

    def __init__(self, provider, socket):
        self.provider = provider
        self.socket = socket
        self.buffer = bytearray()
        self.marks = []  # (bytes of the buffer before it, name)
        self.heard = bytearray()
        self.came = 0  # bytes of audio since the last clear
        self.clears = 0
        self.returned = 0
        self.quiet_s = 0.0
        self.failure = None

    async def send(self, message):
        if message is not None:
            await self.socket.send(message)

    async def say(self, pcm):
        """Sends PCM in real time, and plays what came."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        for at in range(0, len(pcm), FRAME_BYTES):
            message = self.provider.media(self.provider.encode(pcm[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\0")))
            await self.provider.judge_sent(message)
            await self.send(message)
            await self.play()
            due += 0.02
            await asyncio.sleep(max(0, due - loop.time()))
            if self.failure:
                raise self.failure

    async def play(self):
        """The caller hears 20 ms of the buffer; marks that are reached return."""
        heard = self.buffer[:FRAME_BYTES]
        del self.buffer[:FRAME_BYTES]
        self.heard += heard
        self.quiet_s = 0.0 if heard else self.quiet_s + 0.02
        marks, self.marks = [(before - FRAME_BYTES, name) for before, name in self.marks], []
        for before, name in marks:
            if before > 0:
                self.marks.append((before, name))
            else:
                self.returned += 1
                await self.send(self.provider.mark(name, False))

    async def listen(self):
        try:
            async for message in self.socket:
                kind, value = self.provider.read(message)
                await self.provider.judge_received(kind, message)
                if kind == "audio":
                    pcm = self.provider.decode(value)
                    self.came += len(pcm)
                    self.buffer += pcm
                elif kind == "mark":
                    self.marks.append((len(self.buffer), value))
                elif kind == "stop":  # of a provider that plays what it has
                    self.clears += 1
                    self.came = 0
                elif kind == "clear":
                    self.clears += 1
                    self.came = 0
                    self.buffer.clear()
                    dropped, self.marks = self.marks, []
                    for _, name in dropped:
                        await self.send(self.provider.mark(name, True))
        except ConnectionClosed:
            pass
        except Exception as failure:  # reported by the task that talks
            self.failure = failure

    async def hear_start(self):
        for _ in range(PATIENCE_S * 50):
            await self.say(bytes(FRAME_BYTES))
            if self.heard:
                return
        raise AssertionError("no answer")

    async def hear_end(self):
        """Silence of the caller until the answer was played: its mark has returned, or 1.5 s passed."""
        await self.hear_start()
        returned = self.returned
        for _ in range(PATIENCE_S * 50):
            is_over = self.returned > returned or not self.provider.returns_marks and self.quiet_s > 1.5
            if is_over and not self.buffer:
                return
            await self.say(bytes(FRAME_BYTES))
        raise AssertionError(f"the answer has no end after {len(self.heard)} bytes; marks returned: {self.returned}")


def shape(message):
    """Names and types of a message's members."""
    if isinstance(message, (bytes, bytearray)):
        return bytes
    if isinstance(message, str):
        message = json.loads(message)
    if not isinstance(message, dict):
        return type(message)
    return {key: shape(value) if isinstance(value, dict) else type(value) for key, value in message.items()}


def read_wav(path):
    with wave.open(path) as recording:
        assert (recording.getframerate(), recording.getnchannels(), recording.getsampwidth()) == (RATE, 1, 2)
        return recording.readframes(recording.getnframes())


def write_wav(path, pcm):
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(bytes(pcm))


def seconds(pcm):
    return round(len(pcm) / 2 / RATE, 3)


async def set_up(serializer):
    await serializer.setup(types.SimpleNamespace(audio_in_sample_rate=RATE))
    return serializer


async def talk(provider, call, cell, recording, text):
    """Plays one cell; returns its result."""
    if cell == "error":
        await call.send(provider.broken_start())
        for _ in range(PATIENCE_S * 50):
            try:
                await call.say(bytes(FRAME_BYTES))
            except ConnectionClosed:
                return {"error": f"{call.socket.close_code} {call.socket.close_reason}"}
        raise AssertionError("the call goes on")
    for message in provider.first_messages({"language": "en", **({"say": text} if cell == "speech" else {})}):
        await call.send(message)
    await call.send(provider.dtmf())
    if cell == "close":
        await call.say(bytes(RATE * 2))
        return {}
    if cell == "speech":
        await call.hear_end()
        return {"audio_s": seconds(call.heard)}
    await call.say(bytes(RATE * 2))
    await call.say(recording)
    if cell == "conversation":
        await call.hear_end()
        assert call.clears == 0, "nobody interrupted"
        return {"text": "", "user": "", "audio_s": seconds(call.heard)}
    await call.hear_start()
    await call.say(bytes(RATE))
    before = 0
    for at in range(0, len(recording), FRAME_BYTES):
        if not call.clears:
            before = len(call.heard)
        await call.say(recording[at : at + FRAME_BYTES])
    # The user was still speaking, so that nothing of the next answer can have come.
    late = call.came if call.clears else 0
    return {"audio_s": before / 2 / RATE, "stopped": call.clears == 1, "late_audio_s": late / 2 / RATE}


async def main(provider, cell, base, recording, heard, text):
    url = base.replace("http", "ws", 1).rstrip("/") + provider.path
    await provider.prepare()
    async with connect(url, subprotocols=provider.subprotocols) as socket:
        if provider.subprotocols:
            assert socket.subprotocol == provider.subprotocols[0], socket.subprotocol
        call = Call(provider, socket)
        listening = asyncio.create_task(call.listen())
        result = await talk(provider, call, cell, read_wav(recording), text)
        if cell != "error":
            last = provider.last_message()
            await (call.send(last) if last is not None else socket.close())
            await asyncio.wait_for(listening, 10)
        if call.failure:
            raise call.failure
        if cell == "close":
            result = {"code": socket.close_code, "clean": socket.close_code == 1000}
    write_wav(heard, call.heard)
    print(json.dumps(result))


def run(provider):
    asyncio.run(main(provider, *sys.argv[1:6]))
