"""Talks through the unchanged DuplexClient of the package vllm-omni: vllm_omni_client.py URL RECORDING.wav

Says a second of silence, the recording and silence until the answer is complete, in appends of 200 ms at the pace of speech. Prints one JSON line.
"""

import asyncio
import base64
import json
import os
import sys
import types
import wave

# Without the package's own imports, which are the model's.
root = next(path for path in sys.path if os.path.isdir(f"{path}/vllm_omni"))
package = types.ModuleType("vllm_omni")
package.__path__ = [f"{root}/vllm_omni"]
sys.modules["vllm_omni"] = package

from vllm_omni.clients.duplex import DuplexClient, DuplexProtocolError, audio_data_url  # noqa: E402
from vllm_omni.clients.minicpmo_4_5 import create_duplex_session_config  # noqa: E402

APPEND_BYTES = 2 * 16_000 // 5
PACE_S = 0.2


async def speak(client, pcm, is_over):
    for at in range(0, len(pcm), APPEND_BYTES):
        await client.append_audio(pcm[at : at + APPEND_BYTES])
        await asyncio.sleep(PACE_S)
    while not is_over.is_set():
        await client.append_audio(bytes(APPEND_BYTES))
        await asyncio.sleep(PACE_S)


async def talk(url, recording):
    with open(recording, "rb") as file:
        voice = file.read()
    with wave.open(recording) as file:
        pcm = file.readframes(file.getnframes())
    config = create_duplex_session_config(ref_audio=audio_data_url(voice))
    came = {"events": [], "listened": 0}
    is_over = asyncio.Event()
    async with DuplexClient(url, model="openbmb/MiniCPM-o-4_5", config=config, heartbeat_interval_s=0.1) as client:
        came["session_id"] = client.session_id

        async def note():
            async for event in client:
                came["events"].append(event.type)

        noting = asyncio.create_task(note())
        speaking = asyncio.create_task(speak(client, bytes(32_000) + pcm, is_over))
        async for response in client.responses():
            if response.decision == "listen":
                came["listened"] += 1
                continue
            audio = b""
            async for chunk in response.audio():
                audio += chunk
                await client.ack_playback(response.played_ms, response_id=response.response_id)
            came |= {
                "audio": base64.b64encode(audio).decode(),
                "transcript": response.transcript,
                "status": response.done_event.raw["response"]["status"],
            }
            break
        is_over.set()
        await speaking
        await client.commit()
        await client.cancel_response()
        try:
            await client.wait_for("response.done", timeout_s=20)
        except DuplexProtocolError as error:
            came["cancelled_without_response"] = error.code
    await noting
    return came


print(json.dumps(asyncio.run(asyncio.wait_for(talk(*sys.argv[1:3]), 90))))
