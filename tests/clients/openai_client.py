"""Talks through OpenAI's public Python library: python3 openai_client.py SERVICE CODE RECORDING.wav RECORDING.wav [...]

SERVICE `realtime` talks in turns. `converse` talks with a model that speaks unasked, and `live` does so by OpenAI's Live API; `beta`
talks in turns in the older shape. The code makes a client and connects it. Prints the talk as JSON. `invalid` lists the events that the library's own types reject.
"""

import asyncio
import base64
import sys

from openai import AsyncOpenAI
from openai.types.beta.realtime import RealtimeServerEvent as BetaServerEvent
from openai.types.live import ServerEvent as LiveServerEvent
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError
from readme_code import evaluate
from realtime_talk import PICTURE_URL, Talk, main

SESSION = {
    "type": "realtime",
    "instructions": "Answer briefly.",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "transcription": {"model": "gpt-4o-mini-transcribe", "language": "en"},
            "turn_detection": {"type": "server_vad", "interrupt_response": True},
        },
        "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"},
    },
}


BETA_SESSION = {
    "instructions": "Answer briefly.",
    "modalities": ["text", "audio"],
    "voice": "alloy",
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "whisper-1", "language": "en"},
    "turn_detection": {"type": "server_vad"},
}
LIVE_SESSION = {
    "model": "gpt-live-1",
    "instructions": "Answer briefly.",
    "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "marin"}},
}


class OpenaiTalk(Talk):
    schema = RealtimeServerEvent

    def __init__(self, connection):
        super().__init__()
        self.connection, self.invalid = connection, []

    async def send_audio(self, audio):
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(audio).decode())

    async def receive(self):
        schema = TypeAdapter(self.schema)
        while True:
            data = await self.connection.recv_bytes()
            try:
                schema.validate_json(data)
            except ValidationError as error:
                self.invalid.append(f"{data[:300]}: {error}")
            self.handle(self.connection.parse_event(data))

    def handle(self, event):
        self.note_event(event.type)
        match event.type:
            case "conversation.item.input_audio_transcription.completed":
                self.note_user(event.transcript)
            case "response.created":
                self.begin_answer()
            case "response.output_audio.delta" | "response.audio.delta":
                self.note_audio(base64.b64decode(event.delta))
            case "response.output_audio_transcript.delta" | "response.audio_transcript.delta":
                self.note_text(event.delta)
            case "response.done":
                self.end_answer(event.response.status)
            case "error":
                self.note_error(event.error)


class BetaTalk(OpenaiTalk):
    schema = BetaServerEvent


class LiveTalk(OpenaiTalk):
    """Its audio never ends, and has neither turns nor ids."""

    schema = LiveServerEvent

    async def send_audio(self, audio):
        event = {"type": "session.input_audio.append", "audio": base64.b64encode(audio).decode()}
        await self.connection.send(event)

    def handle(self, event):
        self.note_event(event.type)
        match event.type:
            case "session.started":
                self.begin_answer()
            case "session.output_audio.delta":
                self.note_audio(base64.b64decode(event.delta))
            case "session.output_transcript.delta":
                self.note_text(event.delta)
            case "session.closed":
                self.end_answer(event.reason)
            case "error":
                self.note_error(event.error)

    async def converse(self, questions):
        await self.connection.send({"type": "session.start", "session": LIVE_SESSION})
        await self.until(lambda: self.answers, "start")
        microphone = asyncio.create_task(self.run_microphone())
        await self.ask(questions[0])
        await self.until(lambda: self.answers[0]["text"], "words")
        microphone.cancel()
        await self.connection.send({"type": "session.close"})
        await self.until(lambda: self.answers[0]["status"], "end")


async def hold(talk, questions):
    """Talks in turns, after a picture was shown."""
    session = BETA_SESSION if isinstance(talk, BetaTalk) else SESSION
    await talk.connection.session.update(session=session)
    # The beta has no pictures.
    if not isinstance(talk, BetaTalk):
        picture = {"type": "input_image", "image_url": PICTURE_URL}
        item = {"type": "message", "role": "user", "content": [picture]}
        await talk.connection.conversation.item.create(item=item)
    await talk.hold(questions)


async def converse(talk, questions):
    if not isinstance(talk, LiveTalk):
        await talk.connection.session.update(session=SESSION)
    await talk.converse(questions)


def connect_beta(code):
    """The same client, but connected to the beta."""
    client = evaluate(code.split(".realtime.")[0], AsyncOpenAI=AsyncOpenAI)
    # The beta resources use TLS, whatever the base URL, unless the WebSocket's own base URL says otherwise.
    client.websocket_base_url = str(client.base_url).replace("http", "ws", 1)
    return client.beta.realtime.connect(model="gpt-4o-realtime-preview")


async def run(code, questions):
    kind, talk_with = {
        "realtime": (OpenaiTalk, hold),
        "converse": (OpenaiTalk, converse),
        "beta": (BetaTalk, hold),
        "live": (LiveTalk, converse),
    }[service]
    async with connect_beta(code) if service == "beta" else evaluate(code, AsyncOpenAI=AsyncOpenAI) as connection:
        talk = kind(connection)
        receiving = asyncio.create_task(talk.receive())
        await talk_with(talk, questions)
        receiving.cancel()
    code = connection._connection.close_code
    return {**talk.report(), "invalid": talk.invalid, "close_code": code}


service = sys.argv.pop(1)
main(run)
