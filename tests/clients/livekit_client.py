"""Talks through LiveKit's OpenAI plugin: python3 livekit_client.py SERVICE CODE RECORDING.wav RECORDING.wav RECORDING.wav

SERVICE `realtime` talks with the model: before the first question, the driver shows a picture, adds to the conversation and asks
for a greeting. SERVICE `converse` talks with a model that speaks unasked. SERVICE `stt` only transcribes. The code is
a keyword argument of the services. Prints the talk as JSON.
"""

import asyncio
import logging
import sys

from livekit import rtc
from livekit.agents import llm, stt
from livekit.agents.utils import http_context
from livekit.plugins import openai
from readme_code import keywords
from realtime_talk import RATE, Talk, main

logging.disable()
PICTURE_SIDE = 16


def frame_of(audio):
    return rtc.AudioFrame(data=audio, sample_rate=RATE, num_channels=1, samples_per_channel=len(audio) // 2)


class RealtimeTalk(Talk):
    def __init__(self, session):
        super().__init__()
        self.session, self.playing = session, None
        session.on("openai_server_event_received", lambda event: self.note_event(event["type"]))
        session.on("input_speech_started", lambda _: self.interrupt())
        session.on("input_audio_transcription_completed", self.transcribed)
        session.on("generation_created", self.generated)
        session.on("error", lambda event: self.note_error(event.error))

    async def send_audio(self, audio):
        self.session.push_audio(frame_of(audio))

    def transcribed(self, event):
        if event.is_final:
            self.note_user(event.transcript)

    def generated(self, generation):
        self.begin_answer()
        self.playing = asyncio.create_task(self.play(generation))

    async def play(self, generation):
        answer = self.answers[-1]
        async for message in generation.message_stream:
            self.message_id = message.message_id
            await asyncio.gather(self.play_text(message.text_stream), self.play_audio(message.audio_stream))
        answer["status"] = answer["status"] or "completed"
        self.changed.set()

    async def play_text(self, stream):
        async for delta in stream:
            self.note_text(delta)

    async def play_audio(self, stream):
        async for frame in stream:
            self.note_audio(frame.data.tobytes())

    def interrupt(self):
        """What LiveKit's agent session does when the user interrupts an answer."""
        if self.answers and self.answers[-1]["status"] is None:
            self.answers[-1]["status"] = "cancelled"
            self.session.interrupt()
            heard_ms = round(self.answers[-1]["audio_s"] * 1000)
            self.session.truncate(message_id=self.message_id, modalities=["audio"], audio_end_ms=heard_ms)

    async def greet(self):
        """Shows a picture, adds to the conversation, and asks for an answer."""
        picture = bytes(PICTURE_SIDE * PICTURE_SIDE * 4)
        self.session.push_video(rtc.VideoFrame(PICTURE_SIDE, PICTURE_SIDE, rtc.VideoBufferType.RGBA, picture))
        await self.session.update_instructions("Answer briefly.")
        context = llm.ChatContext()
        context.add_message(role="user", content="My name is Ada.")
        context.add_message(role="assistant", content="Hello Ada.")
        await self.session.update_chat_ctx(context)
        await self.session.generate_reply(instructions="Greet the user.")
        await self.until(lambda: self.answers[0]["status"], "greeting")
        return self.answers.pop()


async def talk(options, questions):
    model = openai.realtime.RealtimeModel(api_key="a key", model="gpt-realtime", **options)
    session = model.session()
    talk = RealtimeTalk(session)
    if service == "converse":
        await talk.converse(questions)
        await session.aclose()
        return talk.report()
    greeting = await talk.greet()
    await talk.hold(questions)
    history = [(item.role, item.text_content) for item in session.chat_ctx.items if item.type == "message"]
    await session.aclose()
    return {**talk.report(), "greeting": greeting, "history": history}


class SttTalk(Talk):
    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    async def send_audio(self, audio):
        self.stream.push_frame(frame_of(audio))

    async def receive(self):
        async for event in self.stream:
            self.note_event(event.type)
            if event.type == stt.SpeechEventType.FINAL_TRANSCRIPT:
                self.note_user(event.alternatives[0].text)


async def transcribe(options, questions):
    service = openai.STT(api_key="a key", model="gpt-4o-mini-transcribe", use_realtime=True, **options)
    talk = SttTalk(service.stream())
    receiving = asyncio.create_task(talk.receive())
    microphone = asyncio.create_task(talk.run_microphone())
    for number, question in enumerate(questions):
        await talk.recordings.put(question)
        await talk.until(lambda: len(talk.users) > number, f"transcript {number}")
    microphone.cancel()
    await talk.stream.aclose()
    await receiving
    return talk.report()


async def run(code, questions):
    async with http_context.open():
        return await (transcribe if service == "stt" else talk)(keywords(code), questions)


service = sys.argv.pop(1)
main(run)
