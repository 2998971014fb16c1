"""Deepgram's public Python library for the Voice Agent, unmodified: deepgram.agent.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Cells: conversation, interruption, speech, error, close.
"""

import json
import sys
import threading
import time

import sound
from deepgram import DeepgramClient
from deepgram.agent.v1.types import (
    AgentV1InjectAgentMessage,
    AgentV1InjectUserMessage,
    AgentV1SendFunctionCallResponse,
    AgentV1Settings,
    AgentV1UpdatePrompt,
)
from deepgram.environment import DeepgramClientEnvironment
from websockets.exceptions import ConnectionClosed

IN_HZ, OUT_HZ = 16000, 24000
cell, base_url, recording, heard, text = sys.argv[1:6]
sockets = base_url.replace("http", "ws", 1)
environment = DeepgramClientEnvironment(base=base_url, production=sockets, agent=sockets, agent_rest=base_url)
client = DeepgramClient(api_key="any-key", environment=environment)
FUNCTION = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def settings(encoding="linear16", **agent):
    return AgentV1Settings(
        **{
            "audio": {
                "input": {"encoding": encoding, "sample_rate": IN_HZ},
                "output": {"encoding": "linear16", "sample_rate": OUT_HZ, "container": "none"},
            },
            "agent": {
                "listen": {"provider": {"type": "deepgram", "version": "v2", "model": "flux-general-en"}},
                "think": {
                    "provider": {"type": "open_ai", "model": "gpt-4o-mini", "temperature": 0.7},
                    "prompt": "Answer in one sentence.",
                    "functions": [FUNCTION],
                },
                "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}},
                **agent,
            },
        }
    )


class Talk:
    """A connection, and what came."""

    def __init__(self, connection, **agent):
        self.connection, self.audio, self.events = connection, b"", []
        self.until("Welcome")
        connection.send_settings(settings(**agent))
        self.until("SettingsApplied")

    def next(self):
        """The next message; audio is bytes."""
        message = self.connection.recv()
        if isinstance(message, bytes):
            self.audio += message
            return message
        assert message.type not in ("Error", "Warning"), message
        self.events.append(message)
        return message

    def until(self, kind):
        while not ((message := self.next()) is not None and getattr(message, "type", "") == kind):
            pass
        return message

    def words(self, role):
        return " ".join(it.content for it in self.events if it.type == "ConversationText" and it.role == role)

    def say(self):
        """Sends the recording as it would be spoken, and silence behind it, until the returned event is set."""
        pcm, stop = sound.read(recording, IN_HZ), threading.Event()

        def run():
            step, start, at = IN_HZ // 20 * 2, time.monotonic(), 0
            while not stop.wait(max(0, start + at / 2 / IN_HZ - time.monotonic())):
                self.connection.send_media(pcm[at : at + step].ljust(step, b"\0"))
                at += step

        threading.Thread(target=run, daemon=True).start()
        return stop


def call_function(connection, talk):
    """Asks for what only the function knows. The answer has its result."""
    connection.send_inject_user_message(AgentV1InjectUserMessage(content="What is the weather in Rome?"))
    (call,) = talk.until("FunctionCallRequest").functions
    assert call.client_side and call.name == FUNCTION["name"], call
    before = len(talk.events)
    content = f"sunny in {json.loads(call.arguments)['city']}"
    response = AgentV1SendFunctionCallResponse(id=call.id, name=call.name, content=content)
    connection.send_function_call_response(response)
    talk.until("AgentAudioDone")
    answer = " ".join(it.content for it in talk.events[before:] if it.type == "ConversationText")
    assert "sunny in Rome" in answer, answer
    return answer


def conversation():
    with client.agent.v1.connect() as connection:
        talk = Talk(connection)
        stop = talk.say()
        talk.until("AgentAudioDone")
        # The model's words have no full stop here, so that they are complete with the answer.
        while not talk.words("assistant"):
            talk.next()
        stop.set()
        connection.send_keep_alive()
        connection.send_update_prompt(AgentV1UpdatePrompt(prompt="Answer in two sentences."))
        talk.until("PromptUpdated")
        audio, kinds = talk.audio, [event.type for event in talk.events]
        came = {"text": talk.words("assistant"), "user": talk.words("user")}
        came["called"] = call_function(connection, talk)
    sound.write(heard, audio, OUT_HZ)
    order = ["UserStartedSpeaking", "AgentThinking", "AgentStartedSpeaking", "AgentAudioDone"]
    assert [kind for kind in kinds if kind in order] == order, kinds
    return {**came, "audio_s": sound.seconds(audio, OUT_HZ), "events": kinds}


def interruption():
    with client.agent.v1.connect() as connection:
        talk = Talk(connection)
        connection.send_inject_user_message(AgentV1InjectUserMessage(content=text))
        talk.until("AgentStartedSpeaking")
        while not isinstance(talk.next(), bytes):
            pass
        stop = talk.say()
        talk.until("UserStartedSpeaking")
        before, talk.audio = talk.audio, b""
        talk.until("AgentThinking")
        stop.set()
    return {
        "audio_s": sound.seconds(before, OUT_HZ),
        "stopped": True,
        "late_audio_s": sound.seconds(talk.audio, OUT_HZ),
    }


def speech():
    """The greeting, and a message for the agent to say."""
    with client.agent.v1.connect() as connection:
        talk = Talk(connection, greeting=text)
        talk.until("AgentAudioDone")
        greeting, talk.audio = talk.audio, b""
        connection.send_inject_agent_message(AgentV1InjectAgentMessage(message="One more thing."))
        talk.until("AgentAudioDone")
    assert talk.words("assistant") == f"{text} One more thing.", talk.words("assistant")
    sound.write(heard, greeting, OUT_HZ)
    return {"audio_s": sound.seconds(greeting, OUT_HZ), "second_audio_s": sound.seconds(talk.audio, OUT_HZ)}


def error():
    with client.agent.v1.connect() as connection:
        connection.send_settings(settings(encoding="speex"))
        while (message := connection.recv()).type != "Error":
            pass
        return {"error": f"{message.code}: {message.description}"}


def close():
    with client.agent.v1.connect() as connection:
        Talk(connection)
        connection._websocket.close()
        try:
            connection.recv()
        except ConnectionClosed as end:
            return {"code": end.rcvd.code, "clean": end.rcvd.code == 1000}
    return {"clean": False}


CELLS = {"conversation": conversation, "interruption": interruption, "speech": speech, "error": error, "close": close}
print(json.dumps(CELLS[cell]()))
