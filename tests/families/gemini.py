"""The Python client of Gemini Live (google-genai), unmodified, against voxbridge.

gemini.py CELL BASE_URL RECORDING.wav HEARD.wav TEXT

The client speaks TLS only, so that BASE_URL begins with https:// and SSL_CERT_FILE names the certificate. Prints one JSON object.
"""

import asyncio
import json
import sys

import sound
from google import genai
from google.genai import errors, types

IN_HZ, OUT_HZ = 16000, 24000


def config(**more):
    return types.LiveConnectConfig(
        response_modalities=["AUDIO"],
        system_instruction="Answer in one sentence.",
        input_audio_transcription={},
        output_audio_transcription={},
        **more,
    )


async def say(session, pcm, silence_s=60.0):
    """Sends a recording as it would be spoken, and silence behind it."""
    pcm = pcm + bytes(int(silence_s * IN_HZ) * 2)
    step = IN_HZ // 10 * 2
    loop = asyncio.get_running_loop()
    start = loop.time()
    for at in range(0, len(pcm), step):
        await session.send_realtime_input(
            audio=types.Blob(data=pcm[at : at + step], mime_type=f"audio/pcm;rate={IN_HZ}")
        )
        await asyncio.sleep(max(0, start + (at + step) / 2 / IN_HZ - loop.time()))


async def conversation(client, recording, heard, _text):
    audio, words, user = b"", "", ""
    async with client.aio.live.connect(model="gemini-live", config=config()) as session:
        speaking = asyncio.create_task(say(session, sound.read(recording, IN_HZ)))
        async for message in session.receive():
            audio += message.data or b""
            content = message.server_content
            if content and content.output_transcription:
                words += content.output_transcription.text or ""
            if content and content.input_transcription:
                user += content.input_transcription.text or ""
        speaking.cancel()
    sound.write(heard, audio, OUT_HZ)
    return {"text": words.strip(), "user": user.strip(), "audio_s": sound.seconds(audio, OUT_HZ)}


async def interruption(client, recording, _heard, text):
    before, late, stopped, speaking = b"", b"", False, None
    async with client.aio.live.connect(model="gemini-live", config=config()) as session:
        await session.send_client_content(turns=types.Content(role="user", parts=[types.Part(text=text)]))
        async for message in session.receive():
            if message.server_content and message.server_content.interrupted:
                stopped = True
            if stopped:
                late += message.data or b""
            else:
                before += message.data or b""
            if before and not speaking:
                speaking = asyncio.create_task(say(session, sound.read(recording, IN_HZ)))
        if speaking:
            speaking.cancel()
    return {"audio_s": sound.seconds(before, OUT_HZ), "stopped": stopped, "late_audio_s": sound.seconds(late, OUT_HZ)}


async def error(client, _recording, _heard, _text):
    async with client.aio.live.connect(model="gemini-live", config=config()) as session:
        await session.send_realtime_input(audio=types.Blob(data=bytes(320), mime_type="audio/ogg"))
        try:
            async for _ in session.receive():
                pass
        except errors.APIError as problem:
            return {"error": str(problem)}
    return {"error": ""}


async def close(client, _recording, _heard, _text):
    async with client.aio.live.connect(model="gemini-live", config=config()) as session:
        await session.send_realtime_input(audio=types.Blob(data=bytes(3200), mime_type=f"audio/pcm;rate={IN_HZ}"))
    return {"code": session._ws.close_code, "clean": True}


CELLS = {"conversation": conversation, "interruption": interruption, "error": error, "close": close}


def main():
    cell, base_url, recording, heard, text = sys.argv[1:6]
    client = genai.Client(api_key="test-key", http_options=types.HttpOptions(base_url=base_url))
    run = CELLS[cell](client, recording, heard, text)
    print(json.dumps(asyncio.run(asyncio.wait_for(run, 38))))


main()
