"""One conversation through one WebSocket library: python3 talk.py LIBRARY WS_URL RECORDING.wav PROFILE

The URL names the model `any` and the language `en`.

PROFILE `speech` tests transcription and spoken text; PROFILE `conversation` tests a talk with the model. LIBRARY is a class of
this file. The script checks everything itself and fails with an exception.
"""

import asyncio
import json
import sys
import time
import wave

FRAME_BYTES = 1280  # 40 ms, the frame length of the macaw command line
PATIENCE_S = 20
PROMPT_S = 4  # timeout of answers that need no computation
GONE = "the end of the connection"


class WebsocketsLegacy:
    """The interface of `websockets` before version 13, which the macaw command line uses; later versions still have it."""

    async def open(self, url):
        from websockets.legacy.client import connect

        self.ws = await connect(url, ping_interval=0.3, ping_timeout=PROMPT_S)

    async def send(self, message):
        await self.ws.send(message)

    async def receive(self):
        from websockets.exceptions import ConnectionClosed

        try:
            return await self.ws.recv()
        except ConnectionClosed:
            return GONE

    async def ping(self):
        await asyncio.wait_for(await self.ws.ping(b"are you there"), PROMPT_S)

    async def close(self):
        await self.ws.close()
        return self.ws.close_code


class WebsocketsAsyncio(WebsocketsLegacy):
    """The interface of `websockets` from version 13 on, as in the published example."""

    async def open(self, url):
        from websockets.asyncio.client import connect

        self.ws = await connect(url, ping_interval=0.3, ping_timeout=PROMPT_S)

    async def close(self):
        await self.ws.close()
        return self.ws.protocol.close_code


class WebsocketsThreads:
    """The interface of `websockets` for programs without an event loop."""

    async def open(self, url):
        from websockets.sync.client import connect

        self.ws = await asyncio.to_thread(connect, url)

    async def send(self, message):
        await asyncio.to_thread(self.ws.send, message)

    async def receive(self):
        from websockets.exceptions import ConnectionClosed

        try:
            return await asyncio.to_thread(self.ws.recv)
        except ConnectionClosed:
            return GONE

    async def ping(self):
        assert await asyncio.to_thread(self.ws.ping(b"are you there").wait, PROMPT_S), "no pong"

    async def close(self):
        await asyncio.to_thread(self.ws.close)
        return self.ws.protocol.close_code


class Aiohttp:
    async def open(self, url):
        import aiohttp

        self.session = aiohttp.ClientSession()
        # It waits half as long for each answer, so that a shorter time would measure the machine.
        self.ws = await self.session.ws_connect(url, heartbeat=2, compress=15)

    async def send(self, message):
        await (self.ws.send_str(message) if isinstance(message, str) else self.ws.send_bytes(message))

    async def receive(self):
        import aiohttp

        message = await self.ws.receive()
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            return message.data
        assert message.type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message
        return GONE

    async def ping(self):
        await self.ws.ping(b"are you there")

    async def close(self):
        await self.ws.close()
        await self.session.close()
        return self.ws.close_code


class WebsocketClient:
    """The package `websocket-client`, which uses threads instead of an event loop."""

    async def open(self, url):
        import websocket

        self.ws = await asyncio.to_thread(websocket.create_connection, url, timeout=PATIENCE_S)
        self.code = None

    async def send(self, message):
        import websocket

        kind = websocket.ABNF.OPCODE_TEXT if isinstance(message, str) else websocket.ABNF.OPCODE_BINARY
        await asyncio.to_thread(self.ws.send, message, kind)

    async def receive(self):
        import websocket

        kind, data = await asyncio.to_thread(self.ws.recv_data)
        if kind == websocket.ABNF.OPCODE_CLOSE:
            self.code = int.from_bytes(data[:2], "big")
            return GONE
        return data.decode() if kind == websocket.ABNF.OPCODE_TEXT else data

    async def ping(self):
        await asyncio.to_thread(self.ws.ping, b"are you there")

    async def close(self):
        await asyncio.to_thread(self.ws.close)
        return self.code


class Conversation:
    def __init__(self, wire):
        self.wire = wire

    async def say(self, **command):
        await self.wire.send(json.dumps(command))

    async def next(self):
        """Receives an event, audio or the end."""
        while True:
            message = await asyncio.wait_for(self.wire.receive(), PATIENCE_S)
            if isinstance(message, bytes) or message is GONE:
                return message
            # Lets a microphone on a busy machine catch up.
            if (event := json.loads(message))["type"] != "session.rate_limit":
                return event

    async def event(self, kind, **fields):
        came = await self.next()
        assert isinstance(came, dict) and came["type"] == kind, f"{kind} was to come, not {came!r:.300}"
        for name, value in fields.items():
            assert came[name] == value, f"{name} of {came}"
        return came

    async def microphone(self, recording, silence_s=1):
        with wave.open(recording) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
            audio = file.readframes(file.getnframes()) + bytes(2 * 16000 * silence_s)
        began = time.monotonic()
        for at in range(0, len(audio), FRAME_BYTES):
            await asyncio.sleep(max(0.0, began + at / 32000 - time.monotonic()))
            await self.wire.send(audio[at : at + FRAME_BYTES])

    async def listen(self, recording):
        playing = asyncio.create_task(self.microphone(recording))
        await self.event("vad.speech_start")
        partials, last = [], ""
        while (came := await self.next())["type"] == "transcript.partial":
            assert came["text"].startswith(last), f"{came['text']!r} after {last!r}"
            partials.append(last := came["text"])
        assert came["type"] == "transcript.final", came
        assert came["segment_id"] == 0 and came["text"] and partials, came
        await self.event("vad.speech_end")
        await playing

    async def speech(self, request_id, first=0):
        """Receives the audio of a speech and its end event, or only its first frames."""
        await self.event("tts.speaking_start", request_id=request_id)
        audio = frames = 0
        while isinstance(came := await self.next(), bytes):
            assert len(came) % 2 == 0 and len(came) <= 65536, len(came)
            audio, frames = audio + len(came), frames + 1
            if frames == first:
                return audio, None
        assert came["type"] == "tts.speaking_end" and came["request_id"] == request_id, came
        return audio, came

    async def rest(self, request_id):
        while isinstance(came := await self.next(), bytes):
            pass
        assert came["type"] == "tts.speaking_end" and came["request_id"] == request_id, came
        return came

    async def speak(self):
        await self.say(type="tts.speak", text="Good morning.", voice="default", request_id="one")
        audio, end = await self.speech("one")
        assert audio > 24000 and not end["cancelled"], (audio, end)

    async def cancel(self):
        await self.say(type="tts.speak", text="This sentence is not spoken to its end. " * 4, request_id="two")
        await self.speech("two", first=1)
        await self.say(type="tts.cancel")
        assert (await self.rest("two"))["cancelled"]
        # All audio has arrived, so the next message answers the next request.
        await self.wire.send("{")
        await self.event("error", code="malformed_json", recoverable=True)

    async def ask(self, recording):
        """Asks the model a question; its answer comes as labelled text and as audio."""
        playing = asyncio.create_task(self.microphone(recording, silence_s=8))
        await self.event("vad.speech_start")
        await self.event("vad.speech_end")
        speaking, audio, words = False, 0, {}
        while True:
            came = await self.next()
            if isinstance(came, bytes):
                assert speaking, "audio outside its pair"
                audio += len(came)
            elif came["type"] in ("transcript.partial", "transcript.final"):
                assert came["speaker"] == "assistant", came
                words[came["type"]] = came["text"]
            elif came["type"] == "tts.speaking_start":
                assert not speaking, came
                speaking, began = True, time.monotonic()
            else:
                assert came["type"] == "tts.speaking_end" and speaking and not came["cancelled"], came
                break
        assert words["transcript.partial"] == words["transcript.final"] == "I heard 3.0 seconds of speech.", words
        # Speech ends when it has been played.
        assert audio > 96000 and time.monotonic() - began > audio / 48000 - 0.5, audio
        playing.cancel()

    async def leave(self, segments_transcribed):
        await self.say(type="session.close")
        await self.event("session.closed", reason="client_request", segments_transcribed=segments_transcribed)
        assert (end := await self.next()) is GONE, end

    async def all(self, url, recording, profile):
        await self.wire.open(url)
        created = await self.event("session.created", model="any")
        assert created["session_id"] and created["config"]["language"] == "en", created
        # Both spellings of every event: the published page's and the real server's.
        await self.say(type="session.configure", vad={"sensitivity": "normal"}, tts_model="kokoro-v1", hot_words=[])
        await self.say(type="session.configure", vad_sensitivity="normal", model_tts="kokoro-v1", enable_itn=True)
        await self.wire.ping()
        if profile == "speech":
            await self.listen(recording)
        else:
            await self.ask(recording)
        await self.speak()
        await self.cancel()
        left = time.monotonic()
        await self.leave(segments_transcribed=1 if profile == "speech" else 0)
        code = await asyncio.wait_for(self.wire.close(), PATIENCE_S)
        took = time.monotonic() - left
        assert code == 1000, f"close code {code}"
        assert took < PROMPT_S, f"the end of the connection took {took:.1f} s"


if __name__ == "__main__":
    library, url, recording, profile = sys.argv[1:]
    began = time.monotonic()
    conversation = Conversation(globals()[library]())
    asyncio.run(conversation.all(url, recording, profile))
    print(f"{library}: {time.monotonic() - began:.1f} s")
