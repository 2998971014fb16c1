"""ElevenLabs' public Python library for Agents, unmodified: elevenlabs.agents.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: conversation, interruption, speech, error, close.
"""

import json
import sys
import threading
import time

import sound

# The script of the other protocols has the library's name, and stands in front of it.
sys.path.pop(0)
from elevenlabs.client import ElevenLabs
from elevenlabs.conversational_ai.conversation import (
    AudioInterface,
    ClientTools,
    Conversation,
    ConversationInitiationData,
)

RATE = 16000
PATIENCE_S = 30
cell, base_url, recording, heard, text = sys.argv[1:6]
client = ElevenLabs(base_url=base_url, api_key="any-key")
TOOL = {
    "type": "client",
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class Sound(AudioInterface):
    """A microphone that is silent until it gets a recording, and a loudspeaker that keeps what it plays."""

    def __init__(self):
        self.played, self.after_interruption, self.interrupted = b"", b"", threading.Event()
        self.pending, self.stopped = b"", threading.Event()

    def start(self, input_callback):
        def run():
            step, start, at = RATE // 20 * 2, time.monotonic(), 0
            while not self.stopped.wait(max(0, start + at / 2 / RATE - time.monotonic())):
                piece, self.pending = self.pending[:step], self.pending[step:]
                input_callback(piece.ljust(step, b"\0"))
                at += step

        threading.Thread(target=run, daemon=True).start()

    def stop(self):
        self.stopped.set()

    def output(self, audio):
        if self.interrupted.is_set():
            self.after_interruption += audio
        else:
            self.played += audio

    def interrupt(self):
        self.interrupted.set()


class Talk:
    """A conversation with all its callbacks."""

    def __init__(self, **agent):
        self.sound, self.answers, self.user, self.corrections, self.end = Sound(), [], [], [], []
        tools = ClientTools()
        tools.register("get_weather", lambda parameters: f"sunny in {parameters['city']}")
        override = {"agent": {"prompt": {"prompt": "Answer in one sentence.", "tools": [TOOL]}, **agent}}
        self.conversation = Conversation(
            client,
            "any-agent",
            # One cell by a signed URL.
            requires_auth=cell == "close",
            audio_interface=self.sound,
            config=ConversationInitiationData(conversation_config_override=override),
            client_tools=tools,
            callback_agent_response=self.answers.append,
            callback_agent_response_correction=lambda *texts: self.corrections.append(texts),
            callback_user_transcript=self.user.append,
            callback_disconnect=self.end.append,
        )
        self.conversation.start_session()
        assert self.wait(lambda: self.conversation._conversation_id and self.conversation._ws)

    def wait(self, holds):
        return sound.wait_until(lambda: holds() or self.end, PATIENCE_S) and not self.end

    def say(self):
        self.sound.pending = sound.read(recording, RATE)

    def close(self):
        self.conversation.end_session()
        return self.conversation.wait_for_session_end()


def conversation():
    talk = Talk()
    talk.say()
    assert talk.wait(lambda: talk.answers and talk.user), (talk.end, talk.answers, talk.user)
    audio = talk.sound.played
    talk.conversation.send_contextual_update("The user is in a hurry.")
    talk.conversation.send_user_message("What is the weather in Rome?")
    assert talk.wait(lambda: "sunny in Rome" in talk.answers[-1]), (talk.end, talk.answers)
    talk.close()
    sound.write(heard, audio, RATE)
    return {
        "text": talk.answers[0],
        "user": talk.user[0],
        "audio_s": sound.seconds(audio, RATE),
        "called": talk.answers[-1],
    }


def interruption():
    talk = Talk()
    talk.conversation.send_user_message(text)
    assert talk.wait(lambda: talk.sound.played), talk.end
    talk.say()
    stopped = talk.wait(talk.sound.interrupted.is_set)
    # The user's own words are not answered before they end.
    assert talk.wait(lambda: not talk.sound.pending), talk.end
    late = talk.sound.after_interruption
    talk.close()
    return {
        "audio_s": sound.seconds(talk.sound.played, RATE),
        "stopped": stopped,
        "late_audio_s": sound.seconds(late, RATE),
    }


def speech():
    """The first message."""
    talk = Talk(first_message=text)
    assert talk.wait(lambda: talk.answers), talk.end
    played = lambda: (len(talk.sound.played), time.sleep(1))[0]
    assert talk.wait(lambda: talk.sound.played and played() == len(talk.sound.played)), talk.end
    talk.close()
    assert talk.answers == [text], talk.answers
    sound.write(heard, talk.sound.played, RATE)
    return {"audio_s": sound.seconds(talk.sound.played, RATE)}


def error():
    talk = Talk()
    talk.conversation._ws.send("no JSON")
    sound.wait_until(lambda: talk.end, 10)
    (end,) = talk.end
    return {"error": f"{end.close_code} {end.close_reason}: {end.message}" if end.reason == "error" else ""}


def close():
    talk = Talk()
    conversation_id = talk.close()
    (end,) = talk.end
    return {"id": conversation_id, "clean": end.reason == "user" and end.message is None}


CELLS = {"conversation": conversation, "interruption": interruption, "speech": speech, "error": error, "close": close}
print(json.dumps(CELLS[cell]()))
