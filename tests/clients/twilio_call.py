"""A phone call over Twilio Media Streams: python3 twilio_call.py WS_URL RECORDING.wav HEARD.wav [PARAMETER=VALUE ...]

Plays Twilio's part with pipecat's unmodified TwilioFrameSerializer: it makes the caller's media messages and reads
those that come back. The caller says the recording, and says it again over the first answer if the parameter
`interrupt` is given. HEARD.wav is what the caller heard, int16 at 16 kHz. Prints what came as JSON.
"""

import asyncio
import json
import sys
import types
import wave

from loguru import logger

logger.remove()
from pipecat.frames.frames import InterruptionFrame, OutputAudioRawFrame  # noqa: E402
from pipecat.serializers.twilio import TwilioFrameSerializer  # noqa: E402
from websockets.asyncio.client import connect  # noqa: E402

RATE = 16000
FRAME_S = 0.02
PATIENCE_S = 60
STREAM = "MZ00000000000000000000000000000001"


class Call:
    """Twilio's end of one call: a buffer that plays in real time, marks that return when it gets there."""

    def __init__(self, socket, serializer):
        self.socket = socket
        self.serializer = serializer
        self.sequence = 0
        self.buffer = bytearray()
        self.marks = []  # (bytes of the buffer before it, name)
        self.heard = bytearray()
        self.came = {"media": 0, "marks": [], "clears": 0, "spelled_alike": True}
        self.answered = asyncio.Event()

    async def send(self, event, **members):
        self.sequence += 1
        message = {"event": event, "sequenceNumber": str(self.sequence), "streamSid": STREAM, **members}
        await self.socket.send(json.dumps(message))

    async def start(self, parameters):
        await self.socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        form = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {"streamSid": STREAM, "accountSid": "AC1", "callSid": "CA1", "tracks": ["inbound"]}
        await self.send("start", start={**start, "customParameters": parameters, "mediaFormat": form})

    async def say(self, pcm):
        """Sends PCM in real time; an empty buffer is played meanwhile as silence."""
        frame_bytes = int(RATE * FRAME_S) * 2
        clock = asyncio.get_running_loop()
        due = clock.time()
        for at in range(0, len(pcm), frame_bytes):
            media = await self.serializer.serialize(OutputAudioRawFrame(pcm[at : at + frame_bytes], RATE, 1))
            if media:
                await self.socket.send(media)
            await self.play(frame_bytes)
            due += FRAME_S
            await asyncio.sleep(max(0, due - clock.time()))

    async def play(self, count):
        """The caller hears this many bytes of the buffer; marks that are reached return."""
        heard = self.buffer[:count]
        del self.buffer[:count]
        self.heard += heard
        left = []
        for before, name in self.marks:
            if before <= len(heard):
                await self.send("mark", mark={"name": name})
            else:
                left.append((before - len(heard), name))
        self.marks = left

    async def listen(self):
        interruption = json.loads(await self.serializer.serialize(InterruptionFrame()))
        sample = json.loads(await self.serializer.serialize(OutputAudioRawFrame(bytes(6400), RATE, 1)))
        async for text in self.socket:
            message = json.loads(text)
            frame = await self.serializer.deserialize(text)
            if message["event"] == "media":
                self.came["media"] += 1
                self.came["spelled_alike"] &= shape(message) == shape(sample)
                if frame:
                    self.buffer += frame.audio
            elif message["event"] == "mark":
                self.came["marks"].append(message["mark"]["name"])
                self.marks.append((len(self.buffer), message["mark"]["name"]))
                self.answered.set()
            else:
                self.came["spelled_alike"] &= message == interruption
                self.came["clears"] += 1
                self.buffer.clear()
                dropped, self.marks = self.marks, []
                for _, name in dropped:
                    await self.send("mark", mark={"name": name})

    async def hear_answer(self):
        """Silence from the caller until an answer has been heard to its end."""
        waited = 0.0
        while not self.answered.is_set() or self.marks:
            await self.say(bytes(6400))
            waited += 0.2
            assert waited < PATIENCE_S, f"no answer: {self.came}"
        self.answered.clear()
        await self.say(bytes(6400))


def shape(message):
    return {key: shape(value) if isinstance(value, dict) else type(value) for key, value in message.items()}


def read(path):
    with wave.open(path) as recording:
        assert (recording.getframerate(), recording.getnchannels(), recording.getsampwidth()) == (RATE, 1, 2)
        return recording.readframes(recording.getnframes())


async def main(url, recording, heard, *parameters):
    parameters = dict(parameter.split("=", 1) for parameter in parameters)
    interrupts = parameters.pop("interrupt", None)
    serializer = TwilioFrameSerializer(STREAM, params=TwilioFrameSerializer.InputParams(auto_hang_up=False))
    await serializer.setup(types.SimpleNamespace(audio_in_sample_rate=RATE))
    async with connect(url) as socket:
        call = Call(socket, serializer)
        await call.start(parameters)
        listening = asyncio.create_task(call.listen())
        if "say" in parameters:
            await call.hear_answer()
        else:
            await call.say(bytes(RATE * 2))
        await call.say(read(recording))
        if interrupts:
            while not call.heard:
                await call.say(bytes(640))
            call.heard.clear()
            await call.say(read(recording))
            call.came["heard_before_clear_ms"] = len(call.heard) // 32
            call.heard.clear()
            call.answered.clear()
        if "say" in parameters:
            await call.say(bytes(RATE * 2 * 2))
        else:
            await call.hear_answer()
        await call.send("stop", stop={"accountSid": "AC1", "callSid": "CA1"})
        await listening
        call.came["close"] = socket.close_code
    with wave.open(heard, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(bytes(call.heard))
    print(json.dumps(call.came))


asyncio.run(main(*sys.argv[1:]))
