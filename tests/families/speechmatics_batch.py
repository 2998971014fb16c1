"""The code of Speechmatics' first page for recordings with its public Python library, unmodified:
speechmatics_batch.py CELL BASE_URL RECORDING.wav

Prints one JSON object. Cells: transcription, error, close (the job is deleted).
"""

import asyncio
import json
import sys

# A script here has the library's name.
sys.path.pop(0)
from speechmatics.batch import AsyncClient, BatchError, FetchData, FormatType, JobConfig, JobError, JobType, TranscriptionConfig

cell, base_url, recording = sys.argv[1:4]


async def main():
    async with AsyncClient(api_key="any-key", url=f"{base_url}/v2") as client:
        if cell == "error":
            config = JobConfig(type=JobType.TRANSCRIPTION, fetch_data=FetchData(url="https://example.com/recording.mp3"))
            try:
                await client.submit_job(None, config=config)
                return {}
            except BatchError as refused:
                return {"error": str(refused)}
        job = await client.submit_job(recording, transcription_config=TranscriptionConfig(language="en"))
        transcript = await client.wait_for_completion(job.id, polling_interval=0.1)
        if cell == "transcription":
            text = await client.get_transcript(job.id, format_type=FormatType.TXT)
            assert text.split() == transcript.transcript_text.split(), (text, transcript.transcript_text)
            assert transcript.job.duration > 1 and transcript.job.data_name.endswith(".wav"), transcript.job
            return {"text": transcript.transcript_text}
        await client.delete_job(job.id)
        try:
            await client.get_job_info(job.id)
            return {"clean": False}
        except JobError:
            return {"clean": True}


print(json.dumps(asyncio.run(main())))
