"""The code of AssemblyAI's text to speech with its public Python library, unmodified: assemblyai.speech.py CELL BASE_URL RECORDING.wav HEARD TEXT

Prints one JSON object. Cells: speech, error.
"""

import json
import sys

# A script here has the library's name.
sys.path.pop(0)
import assemblyai as aai

cell, base_url, recording, heard, text = sys.argv[1:6]
aai.settings.tts_base_url = base_url
aai.settings.api_key = "any-key"
tts = aai.TextToSpeech(config=aai.TTSConfig(voice_id="aai-alba"))

if cell == "error":
    try:
        tts.synthesize(text, aai.TTSConfig(encoding="opus"))
        print(json.dumps({}))
    except aai.TTSError as refused:
        print(json.dumps({"error": f"{refused.error_code}: {refused}"}))
    sys.exit()
wav = tts.synthesize(text, aai.TTSConfig(voice_id="aai-alba", container=aai.TTSContainer.wav))
with tts.stream(text) as speech:
    raw = speech.read()
assert abs(len(wav.audio) - 44 - len(raw)) < 9600, (len(wav.audio), len(raw))
assert wav.sample_rate == 24000 and wav.billed_characters == len(text), wav
with open(heard, "wb") as file:
    file.write(wav.audio)
print(json.dumps({"audio_s": len(raw) / 48000}))
