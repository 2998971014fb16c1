"""Talks through OpenAI's public agents library for Python: python3 openai_agents_client.py CODE RECORDING.wav ×3

The code runs the agent. Prints the talk as JSON, and the library's own history of it.
"""

import asyncio
import contextlib

from agents.realtime import RealtimeAgent, RealtimeRunner
from agents.realtime.model_inputs import RealtimeModelSendRawMessage
from readme_code import evaluate
from realtime_talk import PICTURE_URL, Talk, main

SETTINGS = {
    "model_name": "gpt-realtime",
    "output_modalities": ["audio"],
    "audio": {
        "input": {"format": "pcm16", "transcription": {"model": "gpt-4o-mini-transcribe"}, "turn_detection": {"type": "server_vad", "interrupt_response": True}},
        "output": {"format": "pcm16", "voice": "ash"},
    },
}


class AgentsTalk(Talk):
    def __init__(self, session):
        super().__init__()
        self.session, self.history, self.interrupted = session, [], 0

    async def send_audio(self, audio):
        await self.session.send_audio(audio)

    async def receive(self):
        async for event in self.session:
            match event.type:
                case "raw_model_event":
                    self.handle(event.data)
                case "audio":
                    self.note_audio(event.audio.data)
                case "audio_interrupted":
                    self.interrupted += 1
                case "history_updated":
                    self.history = event.history
                case "error":
                    self.note_error(event.error)

    def handle(self, event):
        match event.type:
            case "raw_server_event":
                self.note_event(event.data["type"])
                if event.data["type"] == "response.done":
                    self.end_answer(event.data["response"]["status"])
            case "turn_started":
                self.begin_answer()
            case "transcript_delta":
                self.note_text(event.delta)
            case "input_audio_transcription_completed":
                self.note_user(event.transcript)
            case "error" | "exception":
                self.note_error(event)

    def said(self):
        """The library's history: roles and words."""
        return [(item.role, [part.transcript or part.text for part in item.content]) for item in self.history]


async def run(code, questions):
    agent = RealtimeAgent(name="assistant", instructions="Answer briefly.")
    runner = RealtimeRunner(agent, config={"model_settings": SETTINGS, "tracing_disabled": True})
    session = await evaluate(code, runner=runner)
    async with session:
        talk = AgentsTalk(session)
        receiving = asyncio.create_task(talk.receive())
        picture = {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PICTURE_URL}]}
        message = {"type": "conversation.item.create", "other_data": {"item": picture}}
        await session.model.send_event(RealtimeModelSendRawMessage(message=message))
        await talk.hold(questions)
        receiving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await receiving
        websocket = session.model._websocket
    return {**talk.report(), "history": talk.said(), "interrupted": talk.interrupted, "close_code": websocket.close_code}


main(run)
