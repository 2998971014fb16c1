"""Talks through OpenAI's public Python library: python3 openai_client.py HTTP_URL RECORDING.wav RECORDING.wav RECORDING.wav

Prints the talk as JSON. `invalid` lists the events that the library's own types reject.
"""

import asyncio
import base64

from openai import AsyncOpenAI
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter, ValidationError
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


class OpenaiTalk(Talk):
    def __init__(self, connection):
        super().__init__()
        self.connection, self.invalid = connection, []

    async def send_audio(self, audio):
        await self.connection.input_audio_buffer.append(audio=base64.b64encode(audio).decode())

    async def receive(self):
        schema = TypeAdapter(RealtimeServerEvent)
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
            case "response.output_audio.delta":
                self.note_audio(base64.b64decode(event.delta))
            case "response.output_audio_transcript.delta":
                self.note_text(event.delta)
            case "response.done":
                self.end_answer(event.response.status)
            case "error":
                self.note_error(event.error)


async def run(url, questions):
    client = AsyncOpenAI(api_key="a key", base_url=f"{url}/v1")
    async with client.realtime.connect(model="gpt-realtime") as connection:
        talk = OpenaiTalk(connection)
        receiving = asyncio.create_task(talk.receive())
        await connection.session.update(session=SESSION)
        picture = {"type": "input_image", "image_url": PICTURE_URL}
        await connection.conversation.item.create(item={"type": "message", "role": "user", "content": [picture]})
        await talk.hold(questions)
        receiving.cancel()
    code = connection._connection.close_code
    return {**talk.report(), "invalid": talk.invalid, "close_code": code}


main(run)
