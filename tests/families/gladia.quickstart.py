"""The code of Gladia's first page with its public Python library, unmodified: gladia.quickstart.py CELL BASE_URL RECORDING.wav

Prints one JSON object. Cells: transcription, error, close (the job is deleted).
"""

import json
import sys

from gladiaio_sdk import GladiaClient

cell, base_url, recording = sys.argv[1:4]
client = GladiaClient(api_key="any-key", api_url=base_url).pre_recorded_v2()
OPTIONS = {"language_config": {"languages": ["en"]}, "custom_vocabulary_config": {"vocabulary": ["Norland"]}}

if cell == "error":
    try:
        client.transcribe("https://example.com/recording.mp3", OPTIONS, interval=0.1)
        print(json.dumps({}))
    except Exception as refused:
        print(json.dumps({"error": str(refused)}))
    sys.exit()
job = client.transcribe(recording, OPTIONS, interval=0.1)
assert job.status == "done", job
if cell == "transcription":
    transcription = job.result.transcription
    words = [word.word for utterance in transcription.utterances for word in utterance.words]
    assert "".join(words).split() == transcription.full_transcript.split(), words
    assert job.result.metadata.audio_duration > 1, job.result.metadata
    print(json.dumps({"text": transcription.full_transcript}))
elif cell == "close":
    deleted = client.delete(job.id)
    try:
        client.get(job.id)
        print(json.dumps({"clean": False}))
    except Exception:
        print(json.dumps({"clean": deleted}))
