"""Public libraries for Python that are not of the protocol's vendor, unmodified:
python_sdks.py LIBRARY CELL BASE_URL RECORDING.wav HEARD.wav TEXT

Prints one JSON object. Libraries and cells: dashscope_asr: transcription, error, close; dashscope_tts: speech, interruption, error;
funasr: transcription, close; whisper_live: transcription, error, close; yakyak: speech.
"""

import asyncio
import json
import sys
import time
import types
from urllib.parse import urlsplit

import sound

# Scripts here have names of packages, and stand in front of them.
sys.path.pop(0)
PIECE_S = 0.05
IN_HZ, OUT_HZ = 16000, 24000
PATIENCE_S = 20
library, cell, base_url, recording, heard, text = sys.argv[1:7]
ws_url = base_url.replace("http", "ws", 1)
# Nothing but the result goes to the standard output.
result, sys.stdout = sys.stdout, sys.stderr


class Unused(types.ModuleType):
    """A module for a microphone, a loudspeaker or files, which a library imports and does not use here."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: Unused(name)

    def __call__(self, *_, **__):
        return self


for unused in ["av", "librosa", "pyaudio", "scipy", "soundfile"]:
    sys.modules[unused] = Unused(unused)


async def until(holds):
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.05)


async def dashscope_asr():
    from dashscope_realtime.asr import ASRConfig, DashScopeRealtimeASR

    sentences, ends, errors = [], [], []
    asr = DashScopeRealtimeASR(
        "any",
        ASRConfig(format="amr" if cell == "error" else "pcm", language_hints=["en"]),
        url=f"{ws_url}/api-ws/v1/inference/",
        on_sentence_end=sentences.append,
        on_final=ends.append,
        on_error=errors.append,
    )
    async with asr:
        if cell == "error":
            await until(lambda: errors)
            return {"error": str(errors[0])}
        if cell == "transcription":
            for piece in sound.pieces(recording, PIECE_S):
                await asr.send_audio(piece)
                await asyncio.sleep(PIECE_S)
        await asr.finish()
        await until(lambda: ends)
    return {"text": " ".join(sentences), "clean": not errors}


async def dashscope_tts():
    from dashscope_realtime.tts import DashScopeRealtimeTTS, TTSConfig

    audio, errors = bytearray(), []
    tts = DashScopeRealtimeTTS(
        "any",
        TTSConfig(sample_rate=OUT_HZ, audio_format="amr" if cell == "error" else "pcm"),
        url=f"{ws_url}/api-ws/v1/inference/",
        send_audio=audio.extend,
        on_error=errors.append,
    )
    async with tts:
        if cell == "error":
            await until(lambda: errors)
            return {"error": str(errors[0])}
        if cell == "interruption":
            await tts.say(" ".join([text] * 20))
            await until(lambda: audio)
            await tts.interrupt()
            before = len(audio)
            audio.clear()
            # The new connection speaks, and nothing of the old text.
            await tts.say("The end.")
            await tts.finish()
            await tts.wait_done()
            late_s = max(0, sound.seconds(audio, OUT_HZ) - 2)
            return {"audio_s": before / 2 / OUT_HZ, "stopped": bool(audio), "late_audio_s": late_s}
        for word in text.split(" "):
            await tts.say(f"{word} ")
        await tts.finish()
        await tts.wait_done()
    assert not errors, errors
    sound.write(heard, bytes(audio), OUT_HZ)
    return {"audio_s": sound.seconds(audio, OUT_HZ)}


async def funasr():
    from funasr_client import AsyncFunASRClient
    from funasr_client.callbacks import AsyncSimpleCallback

    partials, finals, errors = [], [], []

    def keep(kept):
        async def note(event):
            kept.append(event)

        return note

    callback = AsyncSimpleCallback(on_partial=keep(partials), on_final=keep(finals), on_error=keep(errors))

    async def audio():
        for piece in sound.pieces(recording, PIECE_S) if cell == "transcription" else [bytes(3200)]:
            yield piece
            await asyncio.sleep(PIECE_S)

    client = AsyncFunASRClient(ws_url, timeout=PATIENCE_S)
    await client.start()
    await client.recognize_stream(audio(), callback)
    began = time.monotonic()
    await client.close()
    words = [event.text for event in finals if event.text] or [event.text for event in partials][-1:]
    clean = not errors and time.monotonic() - began < 8
    return {"text": " ".join(words), "partials": len(partials), "clean": clean}


def whisper_live():
    import whisper_live.client
    from whisper_live.transcription_client import TranscriptionClient

    place, messages = urlsplit(base_url), []
    client = TranscriptionClient(
        place.hostname,
        place.port,
        lang="en",
        output_transcription_path=f"{heard}.srt",
        log_transcription=False,
        mute_audio_playback=True,
    )
    client.register_callback("handle_status_messages", messages.append)
    if cell == "error":
        # A task that Whisper does not have, in the first message.
        client.client.task = "summarize"
    client.wait_for_server_ready()
    if cell == "error":
        sound.wait_until(lambda: messages)
        return {"error": messages[0]["message"]}
    if cell == "close":
        began = time.monotonic()
        client.close_all_clients()
        # Two threads of the client read its socket then: either finds the server's close frame, and the one that keeps the connection
        # takes it for an error. If the other one does, the first waits for its next look at the socket, 10 s later.
        found = client.client.client_socket.last_close_frame
        code = int.from_bytes(found.data[:2]) if found else getattr(client.client.error_message, "status_code", None)
        return {"clean": code == 1000 and time.monotonic() - began < 15}
    # The client waits for more words, 15 s, in a loop that asks for the time, which would cost the other tests a processor.
    whisper_live.client.time = types.SimpleNamespace(time=lambda: time.sleep(0.01) or time.time(), sleep=time.sleep)
    client.play_file(recording)
    # At the end it adds the last words that may still change, although they are settled by then.
    settled = [segment["text"].strip() for segment in client.client.transcript if segment.get("completed")]
    return {"text": " ".join(settled)}


async def yakyak():
    from yakyak import piper_tts_server

    place = urlsplit(base_url)
    await piper_tts_server(place.hostname, place.port, text, heard, "wav")
    return {}


LIBRARIES = [dashscope_asr, dashscope_tts, funasr, whisper_live, yakyak]
came = {function.__name__: function for function in LIBRARIES}[library]()
if asyncio.iscoroutine(came):
    came = asyncio.run(came)
print(json.dumps(came), file=result, flush=True)
