"""The code of AssemblyAI's first page with its public Python library, unmodified: assemblyai.quickstart.py CELL BASE_URL RECORDING.wav

Prints one JSON object. Cells: transcription, error, close (the transcript is deleted).
"""

import json
import sys

# A script here has the library's name.
sys.path.pop(0)
import assemblyai as aai

cell, base_url, recording = sys.argv[1:4]
aai.settings.base_url = base_url
aai.settings.api_key = "any-key"
aai.settings.polling_interval = 0.1

transcriber = aai.Transcriber(config=aai.TranscriptionConfig(speech_models=["universal"]))
if cell == "error":
    try:
        answer = transcriber.transcribe("https://example.com/recording.mp3")
        print(json.dumps({"error": answer.error}))
    except aai.types.TranscriptError as refused:
        print(json.dumps({"error": str(refused)}))
    sys.exit()
transcript = transcriber.transcribe(recording)
assert transcript.status == aai.TranscriptStatus.completed, transcript.error
if cell == "transcription":
    words = [word.text for word in transcript.words]
    assert words == transcript.text.split(), (words, transcript.text)
    assert all(word.start <= word.end for word in transcript.words)
    assert "-->" in transcript.export_subtitles_srt()
    assert transcript.get_sentences()[0].text
    print(json.dumps({"text": transcript.text, "audio_s": transcript.audio_duration}))
elif cell == "close":
    aai.Transcript.delete_by_id(transcript.id)
    try:
        aai.Transcript.get_by_id(transcript.id)
        print(json.dumps({"clean": False}))
    except aai.types.TranscriptError:
        print(json.dumps({"clean": True}))
