// What a trace keeps of its sound and of its latencies.

const AUDIO_MAX_S = 300;
// Width of one column of the waveforms.
export const BUCKET_S = 0.02;

// The sound of one direction: its samples, and its envelope.
export class Sound {
  constructor() {
    this.chunks = [];
    this.highs = [];
    this.endS = 0;
  }

  push(samples, rateHz, startS) {
    this.chunks.push({ startS, samples, rateHz });
    this.endS = startS + samples.length / rateHz;
    const perBucket = rateHz * BUCKET_S;
    let at = 0;
    for (let bucket = Math.floor(startS / BUCKET_S); at < samples.length; bucket += 1) {
      const to = Math.min(samples.length, Math.ceil(((bucket + 1) * BUCKET_S - startS) * rateHz), at + Math.ceil(perBucket));
      let high = this.highs[bucket] ?? 0;
      for (; at < to; at += 1) high = Math.max(high, Math.abs(samples[at]));
      this.highs[bucket] = high;
    }
    while (this.chunks[0].startS < this.endS - AUDIO_MAX_S) this.chunks.shift();
  }

  // Forgets what would be heard later.
  cutAt(timeS) {
    if (timeS >= this.endS) return;
    this.chunks = this.chunks.filter((chunk) => chunk.startS < timeS);
    this.highs.length = Math.min(this.highs.length, Math.max(0, Math.ceil(timeS / BUCKET_S)));
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
