"""Uploads a recording and has texts spoken with an unmodified public client of a REST API:
python3 rest_client.py openai|livekit|pipecat|deepgram-3|deepgram-5|open-webui CODE RECORDING.wav

The code is the keyword argument `base_url`; for Deepgram it makes the client. Prints the texts, the lengths of the spoken audio in bytes and the errors as JSON.
"""

import asyncio
import json
import sys
import warnings
import wave

from readme_code import evaluate, keywords

TEXT = "The train to London leaves at half past nine."
PATIENCE_S = 60

# The library marks translations as deprecated.
warnings.simplefilter("ignore", DeprecationWarning)


def openai_library(code, path):
    """The synchronous client: formats, events, translation, speech, models and errors."""
    import openai

    client = openai.OpenAI(api_key="a key", timeout=PATIENCE_S, max_retries=0, **keywords(code))
    create = client.audio.transcriptions.create
    texts, errors = {}, {}
    with open(path, "rb") as file:
        data = file.read()
    named = ("voice.m4a", data)
    texts["json"] = create(model="whisper-1", file=named, language="en", prompt="A novel.").text
    verbose = create(
        model="whisper-1", file=named, response_format="verbose_json", timestamp_granularities=["segment", "word"]
    )
    texts["verbose_json"] = verbose.text
    segments = [[segment.start, segment.end, segment.text] for segment in verbose.segments]
    for form in ("text", "srt", "vtt"):
        texts[form] = create(model="whisper-1", file=named, response_format=form)
    stream = create(model="gpt-4o-transcribe", file=named, stream=True)
    events = list(stream)
    assert events[-1].type == "transcript.text.done", events
    texts["events"] = "".join(event.delta for event in events if event.type == "transcript.text.delta")
    assert texts["events"] == events[-1].text
    texts["translation"] = client.audio.translations.create(model="whisper-1", file=named).text

    spoken = {}
    for form in ("mp3", "opus", "flac", "wav", "pcm"):
        answer = client.audio.speech.create(model="tts-1", voice="alloy", input=TEXT, response_format=form)
        spoken[form] = len(answer.read())
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="nova", input=TEXT, instructions="Speak calmly.", speed=1.5
    ) as answer:
        spoken["streamed"] = sum(len(chunk) for chunk in answer.iter_bytes())

    models = [model.id for model in client.models.list()]
    assert client.models.retrieve(models[0]).object == "model"
    for name, act in {
        "no audio": lambda: create(model="whisper-1", file=("x.mp3", b"this is no audio")),
        "empty text": lambda: client.audio.speech.create(model="tts-1", voice="alloy", input=""),
        "unknown format": lambda: create(model="whisper-1", file=named, response_format="diarized_json"),
    }.items():
        try:
            act()
            errors[name] = "none"
        except openai.BadRequestError as error:
            errors[name] = error.body["type"] if error.body else "no body"
    return {"texts": texts, "segments": segments, "spoken": spoken, "errors": errors}


async def livekit(code, path):
    import aiohttp
    from livekit import rtc
    from livekit.agents import utils
    from livekit.plugins import openai

    with wave.open(path) as file:
        rate, audio = file.getframerate(), file.readframes(file.getnframes())
    frame = rtc.AudioFrame(audio, rate, 1, len(audio) // 2)
    options = {"api_key": "a key", **keywords(code)}
    texts, spoken = {}, {}
    async with aiohttp.ClientSession() as session:
        utils.http_context._ContextVar.set(lambda: session)
        for model in ("whisper-1", "gpt-4o-mini-transcribe"):
            heard = await openai.STT(model=model, language="en", use_realtime=False, **options).recognize(frame)
            texts[model] = heard.alternatives[0].text
        for model in ("gpt-4o-mini-tts", "tts-1"):
            audio = bytearray()
            async for event in openai.TTS(model=model, voice="ash", **options).synthesize(TEXT):
                audio += event.frame.data
            spoken[model] = len(audio)
    return {"texts": texts, "spoken": spoken}


async def pipecat(code, path):
    from loguru import logger

    logger.remove()

    from pipecat.frames.frames import EndFrame, ErrorFrame, TranscriptionFrame, TTSAudioRawFrame, TTSSpeakFrame
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.openai.stt import OpenAISTTService
    from pipecat.services.openai.tts import OpenAITTSService
    from pipecat.workers.runner import WorkerRunner

    spoken, errors = [], []

    class Tap(FrameProcessor):
        async def process_frame(self, frame, direction):
            await super().process_frame(frame, direction)
            if isinstance(frame, TTSAudioRawFrame):
                spoken.append(len(frame.audio))
            if isinstance(frame, ErrorFrame):
                errors.append(frame.error)
            await self.push_frame(frame, direction)

    with open(path, "rb") as file:
        data = file.read()
    stt = OpenAISTTService(api_key="a key", **keywords(code))
    frames = [frame async for frame in stt.run_stt(data)]
    errors += [frame.error for frame in frames if isinstance(frame, ErrorFrame)]
    texts = {"stt": " ".join(frame.text for frame in frames if isinstance(frame, TranscriptionFrame))}
    settings = OpenAITTSService.Settings(voice="alloy")
    tts = OpenAITTSService(api_key="a key", settings=settings, **keywords(code))
    worker = PipelineWorker(Pipeline([tts, Tap()]), params=PipelineParams(audio_out_sample_rate=24000))
    await worker.queue_frames([TTSSpeakFrame(TEXT), EndFrame()])
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    await runner.run()
    return {"texts": texts, "spoken": {"tts": sum(spoken)}, "errors": errors}


def deepgram_3(code, path):
    import deepgram

    client = evaluate(code, **vars(deepgram))
    with open(path, "rb") as file:
        data = file.read()
    options = deepgram.PrerecordedOptions(model="nova-3", smart_format=True, utterances=True, language="en")
    heard = client.listen.rest.v("1").transcribe_file({"buffer": data}, options)
    texts = {"transcript": heard.results.channels[0].alternatives[0].transcript}
    texts["utterances"] = " ".join(utterance.transcript for utterance in heard.results.utterances)
    options = deepgram.SpeakOptions(model="aura-asteria-en", encoding="linear16", container="wav")
    spoken = client.speak.rest.v("1").stream_memory({"text": TEXT}, options)
    return {"texts": texts, "spoken": {"wav": len(spoken.stream_memory.getvalue())}}


def deepgram_5(code, path):
    from deepgram import DeepgramClient
    from deepgram.environment import DeepgramClientEnvironment

    client = evaluate(code, DeepgramClient=DeepgramClient, DeepgramClientEnvironment=DeepgramClientEnvironment)
    with open(path, "rb") as file:
        data = file.read()
    heard = client.listen.v1.media.transcribe_file(request=data, model="nova-3", utterances=True)
    texts = {"transcript": heard.results.channels[0].alternatives[0].transcript}
    chunks = client.speak.v1.audio.generate(text=TEXT, model="aura-2-thalia-en")
    return {"texts": texts, "spoken": {"mp3": sum(map(len, chunks))}}


async def open_webui(code, path):
    """The calls of Open WebUI 0.12.4 (its file routers/audio), which does not run without its own database and page."""
    import base64

    import aiohttp

    url = keywords(code)["base_url"]
    headers = {"Authorization": "Bearer "}
    with open(path, "rb") as file:
        data = file.read()

    async def chunks():
        for start in range(0, len(data), 1000):
            yield data[start : start + 1000]

    texts, spoken = {}, {}
    async with aiohttp.ClientSession() as session:
        form = aiohttp.FormData()
        form.add_field("model", "whisper-1")
        form.add_field("language", "en")
        form.add_field("file", chunks(), filename="recording.webm")
        async with session.post(url + "/audio/transcriptions", headers=headers, data=form) as answer:
            texts["form"] = (await answer.json())["text"]
        body = {"model": "whisper-1", "input_audio": {"data": base64.b64encode(data).decode(), "format": "webm"}}
        async with session.post(url + "/audio/transcriptions", headers=headers, json=body) as answer:
            texts["json"] = (await answer.json())["text"]
        body = {"model": "tts-1", "input": TEXT, "voice": "alloy"}
        async with session.post(url + "/audio/speech", headers=headers, json=body) as answer:
            assert answer.headers["Content-Type"] == "audio/mpeg", answer.headers
            spoken["mp3"] = len(await answer.read())
    return {"texts": texts, "spoken": spoken}


def main():
    name, code, path = sys.argv[1:]
    act = {
        "openai": openai_library,
        "livekit": livekit,
        "pipecat": pipecat,
        "deepgram-3": deepgram_3,
        "deepgram-5": deepgram_5,
        "open-webui": open_webui,
    }[name]
    result = act(code, path)
    if asyncio.iscoroutine(result):
        result = asyncio.run(asyncio.wait_for(result, PATIENCE_S))
    print(json.dumps(result))


main()
