"""A talk of three turns with a speech model, for drivers of OpenAI Realtime clients. It knows no client.

A driver subclasses `Talk`, sends the microphone's audio, and notes what its client reports. The first answer is heard to its
end. The second is interrupted by the third question, which is then answered.
"""

import array
import asyncio
import json
import sys
import time
import wave

RATE = 24000
CHUNK_S = 0.1
PATIENCE_S = 60
# A picture that is shown before the first question: the first bytes of a JPEG file.
PICTURE_URL = "data:image/jpeg;base64,/9j/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z"
# Length of the second answer that is heard before the interruption.
HEARD_S = 1.0


class Talk:
    def __init__(self):
        self.users, self.answers, self.events, self.errors = [], [], [], []
        self.recordings, self.changed = asyncio.Queue(), asyncio.Event()
        self.is_speaking = False

    async def send_audio(self, audio):
        """Sends int16 audio at 24 kHz."""
        raise NotImplementedError

    async def ask(self, question):
        await self.recordings.put(question)

    # What the client reports.

    def note_event(self, kind):
        """Notes a server event; one of several in a row."""
        if self.events[-1:] != [kind]:
            self.events.append(kind)
        self.changed.set()

    def note_user(self, transcript):
        self.users.append(transcript.strip())
        self.changed.set()

    def note_error(self, error):
        self.errors.append(str(error))
        self.changed.set()

    def begin_answer(self):
        self.answers.append({"text": "", "audio_s": 0.0, "status": None})
        self.changed.set()

    def note_text(self, delta):
        self.answers[-1]["text"] += delta

    def note_audio(self, audio):
        self.answers[-1]["audio_s"] += len(audio) / 2 / RATE
        self.changed.set()

    def end_answer(self, status):
        self.answers[-1]["status"] = status
        self.changed.set()

    # The talk.

    async def hold(self, questions):
        """Asks three questions while the microphone runs."""
        microphone = asyncio.create_task(self.run_microphone())
        try:
            for number, question in enumerate(questions):
                await self.ask(question)
                await self.until(lambda: len(self.answers) > number, f"answer {number}")
                answer = self.answers[number]
                if number == 1:
                    await self.until(lambda: answer["audio_s"] >= HEARD_S, "audio to interrupt")
                else:
                    await self.until(lambda: answer["status"], f"end of answer {number}")
            await self.until(lambda: len(self.users) == len(questions), "transcripts")
        finally:
            microphone.cancel()

    async def converse(self, questions):
        """Asks a model that speaks unasked. The second question interrupts the first answer."""
        microphone = asyncio.create_task(self.run_microphone())
        try:
            await self.ask(questions[0])
            await self.until(lambda: self.answers and self.answers[0]["audio_s"] >= HEARD_S, "audio to interrupt")
            await self.ask(questions[1])
            await self.until(lambda: len(self.answers) > 1 and self.answers[-1]["status"], "end of the last answer")
        finally:
            microphone.cancel()

    async def spoken(self):
        """Waits until the microphone has sent all recordings."""
        while not self.recordings.empty() or self.is_speaking:
            await asyncio.sleep(CHUNK_S)

    async def run_microphone(self):
        """Sends the recordings, and silence between them, in real time."""
        began, sent, audio = time.monotonic(), 0, b""
        chunk_bytes = round(CHUNK_S * RATE) * 2
        while True:
            if not audio and not self.recordings.empty():
                audio = read_recording(self.recordings.get_nowait())
            chunk, audio = audio[:chunk_bytes], audio[chunk_bytes:]
            await self.send_audio(chunk.ljust(chunk_bytes, b"\0"))
            self.is_speaking = bool(audio)
            sent += 1
            await asyncio.sleep(max(0.0, began + sent * CHUNK_S - time.monotonic()))

    async def until(self, condition, name):
        """Waits for a condition on what was noted."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert not self.errors, self.errors
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), deadline - time.monotonic())
            except TimeoutError:
                raise AssertionError(f"no {name}: {self.report()}") from None

    def report(self):
        return {"users": self.users, "answers": self.answers, "events": self.events, "errors": self.errors}


def read_recording(path):
    """A recording at 24 kHz: linear interpolation of three samples from two."""
    with wave.open(path) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16000, 1, 2)
        slow = array.array("h", file.readframes(file.getnframes()))
    fast = array.array("h")
    for at in range(0, len(slow) - 2, 2):
        first, second, third = slow[at : at + 3]
        fast.extend((first, (first + 2 * second) // 3, (2 * second + third) // 3))
    return fast.tobytes()


def main(run):
    """Runs `run(code, questions)` with the command line's arguments, and prints what it returns as JSON."""
    code, *questions = sys.argv[1:]
    print(json.dumps(asyncio.run(run(code, questions))))
