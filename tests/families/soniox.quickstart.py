"""The code of Soniox' first page with its public Python library, unmodified: soniox.quickstart.py CELL BASE_URL RECORDING.wav

Prints one JSON object. Cells: transcription, error, close (the transcription and its file are deleted).
"""

import json
import sys

# A script here has the library's name.
sys.path.pop(0)
from soniox import SonioxClient
from soniox.errors import SonioxAPIError
from soniox.types import CreateTranscriptionConfig

cell, base_url, recording = sys.argv[1:4]
client = SonioxClient(api_key="any-key", api_base_url=f"{base_url}/v1")
CONFIG = CreateTranscriptionConfig(language_hints=["en"])

if cell == "error":
    try:
        client.stt.transcribe(audio_url="https://example.com/recording.mp3")
        print(json.dumps({}))
    except SonioxAPIError as refused:
        print(json.dumps({"error": str(refused)}))
    sys.exit()
transcription = client.stt.transcribe(file=recording, config=CONFIG)
ended = client.stt.wait(transcription.id, interval_sec=0.1)
assert ended.status == "completed", ended
if cell == "transcription":
    transcript = client.stt.get_transcript(ended.id)
    assert "".join(token.text for token in transcript.tokens) == transcript.text, transcript
    assert ended.audio_duration_ms > 1000 and ended.filename.endswith(".wav"), ended
    print(json.dumps({"text": transcript.text}))
elif cell == "close":
    client.stt.destroy(ended.id)
    gone = client.stt.get_or_none(ended.id) is None and client.files.get_or_none(ended.file_id) is None
    print(json.dumps({"clean": gone}))
