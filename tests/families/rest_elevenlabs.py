"""ElevenLabs' public Python library, REST, unmodified: rest_elevenlabs.py CELL BASE_URL RECORDING.wav HEARD TEXT

Prints one JSON object. Cells: transcription, speech (the code of the vendor's first page, in its default format mp3, and as a stream),
error.
"""

import json
import sys

# A script here has the library's name.
sys.path.pop(0)
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

cell, base_url, recording, heard, text = sys.argv[1:6]
client = ElevenLabs(base_url=base_url, api_key="any-key")


def transcription():
    with open(recording, "rb") as file:
        transcript = client.speech_to_text.convert(file=file, model_id="scribe_v2", language_code="en")
    kinds = {word.type for word in transcript.words}
    assert kinds == {"word", "spacing"}, transcript.words
    assert "".join(word.text for word in transcript.words) == transcript.text
    return {"text": transcript.text, "words": len(transcript.words)}


def speech():
    audio = client.text_to_speech.convert(text=text, voice_id="JBFqnCBsd6RMkjVDRZzb", model_id="eleven_multilingual_v2")
    whole = b"".join(audio)
    stream = client.text_to_speech.stream(text=text, voice_id="JBFqnCBsd6RMkjVDRZzb", output_format="mp3_44100_128")
    pieces = list(stream)
    pcm = b"".join(client.text_to_speech.convert(text=text, voice_id="any", output_format="pcm_16000"))
    assert abs(len(whole) - 128000 / 8 * len(pcm) / 32000) < 3000, (len(whole), len(pcm))
    with open(heard, "wb") as file:
        file.write(b"".join(pieces))
    return {"audio_s": len(pcm) / 32000, "bytes": len(whole), "pieces": len(pieces)}


def error():
    try:
        b"".join(client.text_to_speech.convert(text=text, voice_id="any", output_format="mp3_1_2"))
    except ApiError as refused:
        return {"error": f"{refused.status_code}: {refused.body['detail'][0]['msg']}"}
    return {}


print(json.dumps({"transcription": transcription, "speech": speech, "error": error}[cell]()))
