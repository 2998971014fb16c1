// A talk of three turns with a speech model, for drivers of OpenAI Realtime clients: realtime_talk.py in JavaScript.
'use strict';

const fs = require('node:fs');

const RATE = 24_000;
const CHUNK_MS = 100;
const CHUNK_BYTES = (RATE / 1000) * CHUNK_MS * 2;
const PATIENCE_MS = 60_000;
// A picture that is shown before the first question: the first bytes of a JPEG file.
const PICTURE_URL = 'data:image/jpeg;base64,/9j/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z';
// Length of the second answer that is heard before the interruption.
const HEARD_S = 1;

class Talk {
  constructor(sendAudio) {
    Object.assign(this, { sendAudio, users: [], answers: [], events: [], errors: [], audio: Buffer.alloc(0) });
  }

  // Notes a server event; one of several in a row.
  noteEvent(kind) {
    if (this.events.at(-1) !== kind) this.events.push(kind);
  }

  noteUser(transcript) {
    this.users.push(transcript.trim());
  }

  noteError(error) {
    this.errors.push(typeof error === 'string' ? error : (JSON.stringify(error) ?? String(error)));
  }

  beginAnswer() {
    this.answers.push({ text: '', audio_s: 0, status: null });
  }

  noteText(delta) {
    this.answers.at(-1).text += delta;
  }

  noteAudio(bytes) {
    this.answers.at(-1).audio_s += bytes / 2 / RATE;
  }

  endAnswer(status) {
    this.answers.at(-1).status = status;
  }

  // Asks three questions while the microphone runs. The third interrupts the second answer.
  async hold(questions) {
    const microphone = this.startMicrophone();
    try {
      for (const [number, question] of questions.entries()) {
        this.audio = readRecording(question);
        await this.until(() => this.answers.length > number, `answer ${number}`);
        const answer = this.answers[number];
        if (number === 1) await this.until(() => answer.audio_s >= HEARD_S, 'audio to interrupt');
        else await this.until(() => answer.status, `end of answer ${number}`);
      }
      await this.until(() => this.users.length === questions.length, 'transcripts');
    } finally {
      clearInterval(microphone);
    }
  }

  // Says the questions, each after the transcript of the one before.
  async transcribe(questions) {
    const microphone = this.startMicrophone();
    try {
      for (const [number, question] of questions.entries()) {
        this.audio = readRecording(question);
        await this.until(() => this.users.length > number, `transcript ${number}`);
      }
    } finally {
      clearInterval(microphone);
    }
  }

  startMicrophone() {
    const began = performance.now();
    let sent = 0;
    return setInterval(() => {
      for (; sent * CHUNK_MS <= performance.now() - began; sent += 1) this.sendChunk();
    }, CHUNK_MS / 4);
  }

  sendChunk() {
    const chunk = Buffer.alloc(CHUNK_BYTES);
    this.audio.copy(chunk);
    this.audio = this.audio.subarray(CHUNK_BYTES);
    this.sendAudio(chunk);
  }

  async until(condition, name) {
    const deadline = performance.now() + PATIENCE_MS;
    while (!condition()) {
      if (this.errors.length > 0) throw new Error(this.errors.join());
      if (performance.now() > deadline) throw new Error(`no ${name}: ${JSON.stringify(this.report())}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  report() {
    const { users, answers, events, errors } = this;
    return { users, answers, events, errors };
  }
}

// A recording at 24 kHz: linear interpolation of three samples from two.
function readRecording(path) {
  // A canonical WAV file has a header of 44 bytes.
  const bytes = fs.readFileSync(path).subarray(44);
  const slow = (at) => bytes.readInt16LE(2 * at);
  const pairs = Math.floor((bytes.length / 2 - 1) / 2);
  const fast = Buffer.alloc(pairs * 6);
  for (let pair = 0; pair < pairs; pair += 1) {
    const [first, second, third] = [slow(2 * pair), slow(2 * pair + 1), slow(2 * pair + 2)];
    const samples = [first, Math.trunc((first + 2 * second) / 3), Math.trunc((2 * second + third) / 3)];
    samples.forEach((sample, at) => fast.writeInt16LE(sample, pair * 6 + at * 2));
  }
  return fast;
}

// Runs `run(code, questions)` with the command line's arguments, and prints what it returns as JSON.
function main(run) {
  const [code, ...questions] = process.argv.slice(2);
  run(code, questions).then(
    (report) => process.stdout.write(JSON.stringify(report), () => process.exit(0)),
    (error) => {
      console.error(error);
      process.exit(1);
    },
  );
}

module.exports = { PICTURE_URL, Talk, main };
