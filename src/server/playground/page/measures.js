// What a trace keeps of its sound and of its latencies.

const AUDIO_MAX_S = 300;
// Width of one column of the waveforms.
export const BUCKET_S = 0.02;

// Columns that are kept: two hours.
const BUCKETS_MAX = 7200 / BUCKET_S;

// The loudest sample of each column. The oldest columns are forgotten.
class Envelope {
  constructor() {
    this.highs = new Float32Array(1024);
    // The first column that is kept, and the one after the last.
    this.first = 0;
    this.end = 0;
  }

  at(bucket) {
    return this.highs[bucket - this.first] ?? 0;
  }

  raise(bucket, high) {
    while (bucket - this.first >= this.highs.length) this.makeRoom();
    const at = bucket - this.first;
    this.highs[at] = Math.max(this.highs[at], high);
    this.end = Math.max(this.end, bucket + 1);
  }

  makeRoom() {
    const { highs } = this;
    if (highs.length < BUCKETS_MAX) {
      this.highs = new Float32Array(Math.min(2 * highs.length, BUCKETS_MAX));
      this.highs.set(highs);
      return;
    }
    const dropped = highs.length / 4;
    highs.copyWithin(0, dropped);
    highs.fill(0, highs.length - dropped);
    this.first += dropped;
  }

  cutAt(bucket) {
    if (bucket >= this.end) return;
    this.highs.fill(0, Math.max(0, bucket - this.first));
    this.end = bucket;
  }
}

// The sound of one direction: its samples, and its envelope.
export class Sound {
  constructor() {
    this.chunks = [];
    this.envelope = new Envelope();
    this.endS = 0;
  }

  push(samples, rateHz, startS) {
    this.chunks.push({ startS, samples, rateHz });
    this.endS = startS + samples.length / rateHz;
    const perBucket = rateHz * BUCKET_S;
    let at = 0;
    for (let bucket = Math.floor(startS / BUCKET_S); at < samples.length; bucket += 1) {
      const to = Math.min(samples.length, Math.ceil(((bucket + 1) * BUCKET_S - startS) * rateHz), at + Math.ceil(perBucket));
      let high = 0;
      for (; at < to; at += 1) high = Math.max(high, Math.abs(samples[at]));
      this.envelope.raise(bucket, high);
    }
    while (this.chunks[0].startS < this.endS - AUDIO_MAX_S) this.chunks.shift();
  }

  // Forgets what would be heard later.
  cutAt(timeS) {
    if (timeS >= this.endS) return;
    this.chunks = this.chunks.filter((chunk) => chunk.startS < timeS);
    this.envelope.cutAt(Math.max(0, Math.ceil(timeS / BUCKET_S)));
    this.endS = timeS;
  }
}

// The durations of one hop.
export class Hop {
  constructor() {
    this.values = [];
  }

  add(seconds) {
    this.values.push(seconds);
    if (this.values.length > 500) this.values.shift();
  }

  get last() { return this.values.at(-1); }
  get highest() { return Math.max(...this.values); }
  get median() { return this.values.toSorted((a, b) => a - b)[Math.floor(this.values.length / 2)]; }
}
