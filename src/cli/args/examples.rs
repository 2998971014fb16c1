//! What stands below the options of a command: examples, and what else is to be known.

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0   it worked
  1   it failed: the server reported an error, the connection was lost, or there is no result; of doctor, a step failed
  2   the command line or the configuration is wrong
  3   serve stopped as it was told, but sessions had not finished in time and were cut off
  65  the input is not what it should be (no WAV file, no text)
  66  the input cannot be read
  69  no server answers at the address
  130, 143  serve was told to stop a second time, by SIGINT or SIGTERM, and stopped at once

The demo needs nothing installed and nobody's server:
  voxbridge demo";

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  voxbridge demo                             the recording that comes with the program
  voxbridge demo question.wav -o answer.wav  a recording of your own
  voxbridge demo --talk                      the model answers by itself, in full duplex
  voxbridge demo --stay                      keep the servers up, to try your own client on them";

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  voxbridge serve --upstream ws://gpu-host:8006/v1/realtime
  voxbridge serve --config voxbridge.toml --log debug
  VOXBRIDGE_UPSTREAM=wss://gpu-host/v1/realtime voxbridge serve --listen 0.0.0.0:8000

Flags win over environment variables, and those over the configuration file.
SIGHUP reads configuration and mappings again: what is good holds for new sessions, what is not changes nothing.
SIGTERM and SIGINT drain: no new sessions, and those that run finish what is being said, within drain.timeout_ms.
A second one stops at once.";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  voxbridge check --config voxbridge.toml
  voxbridge check --mappings my-mappings

It takes what serve takes, from flags, environment and file, and prints what holds.";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  voxbridge doctor --upstream ws://gpu-host:8006/v1/realtime
  voxbridge doctor --config voxbridge.toml --json
  voxbridge doctor --config voxbridge.toml --client-url ws://127.0.0.1:8000/v1/realtime

It opens one session with each upstream and leaves it politely; where that fails it opens a few more, one after the
other, to find out why. Ctrl-C leaves politely, too.

Exit codes: 0 all is well (slow steps are told), 1 a step failed, 2 the configuration is wrong.";

pub(super) const SIMULATE_EXAMPLES: &str = "\
Examples:
  voxbridge simulate
  voxbridge simulate --backend cpp --fault slow-init=3
  voxbridge simulate --dialect minicpm-o-legacy
  voxbridge simulate --fault queue-full,times=2 --fault die-mid-answer=4

Faults: queue-full, busy, 403-after-queue[=TIMES], stuck-queue, slow-init=SECONDS, die-before-created,
never-answers, die-mid-answer[=DELTAS], drop-mid-answer[=DELTAS], empty-transcript, no-audio.
In full duplex: slow-steps=SECONDS, burst[=UNITS], never-listens, ignores-force[=TIMES], yields, resumes,
late-audio, die-mid-turn[=UNITS], drop-mid-turn[=UNITS], double-terminal, repeats-text, think,
timeout=SECONDS, kv=N, context-full=N.
`,times=N` after a fault lets it strike only so often.";

pub(super) const TRANSCRIBE_EXAMPLES: &str = "\
Examples:
  voxbridge transcribe meeting.wav
  voxbridge transcribe --language de --json interview.wav > events.jsonl
  ffmpeg -i talk.mp3 -f wav - | voxbridge transcribe -

The recording is played in real time, as a microphone would; a minute of audio takes a minute.
Transcripts go to standard output, one utterance per line; progress and notes go to standard error.";

pub(super) const SPEAK_EXAMPLES: &str = "\
Examples:
  voxbridge speak \"Good morning.\" -o morning.wav
  voxbridge speak - -o chapter.wav < chapter.txt
  voxbridge speak \"Good morning.\" -o - | aplay";

pub(super) const TALK_EXAMPLES: &str = "\
Examples:
  voxbridge talk question.wav -o answer.wav
  arecord -f S16_LE -r 16000 -d 5 | voxbridge talk - -o answer.wav

The question is played in real time; then there is silence until the model has answered.";

pub(super) const MAPPINGS_EXAMPLES: &str = "\
Examples:
  voxbridge mappings list
  voxbridge mappings show macaw
  voxbridge mappings explain
  voxbridge mappings explain macaw speech minicpm-o
  voxbridge mappings new my-protocol -o my-mappings/my-protocol.toml
  voxbridge mappings new my-talk --from conversation -o my-mappings/my-talk.toml
  voxbridge mappings try my-mappings/my-protocol.toml --trace traces/1795148864000-sess_0123456789ab.jsonl";

pub(super) const REPLAY_EXAMPLES: &str = "\
Examples:
  voxbridge serve --trace traces --trace-audio --upstream ws://gpu-host:8006/v1/realtime
  voxbridge replay traces/1795148864000-sess_0123456789ab.jsonl
  voxbridge replay traces/1795148864000-sess_0123456789ab.jsonl --profile my-profile.toml

Exit codes: 0 the same came out, 1 something else did, 65 the file is no trace.
A trace without audio is replayed with silence in its place; what cannot be judged by that is said.";
