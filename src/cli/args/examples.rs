//! Help text below the options of each command: examples, notes and exit codes.

pub(super) const EXIT_CODES: &str = "\
Exit codes:
  0         the command succeeded
  1         the command failed: the server reported an error, the connection was lost, there is no result, or a doctor step failed
  2         the command line or the configuration is wrong
  3         serve drained on request, but cut off sessions that had not finished in time
  65        the input has the wrong format (not audio in a known format, no text)
  66        the input cannot be read
  69        no server answers at this address
  75        transcribe: some utterances were not transcribed, and are marked in the transcript; or another command works on the file
  76        the server's certificate is not trusted
  130, 143  SIGINT or SIGTERM stopped the command; serve stops at the second one

Try the demo first; it needs no installation and no server:
  voxbridge demo";

pub(super) const DEMO_EXAMPLES: &str = "\
Examples:
  voxbridge demo                             play the built-in recording
  voxbridge demo --engines                   the same with real words: fetches speech engines first
  voxbridge demo question.wav -o answer.wav  play your own recording
  voxbridge demo --talk                      hold a full-duplex conversation with the model
  voxbridge demo --openai                    show a client of OpenAI's Realtime API, and interrupt the answer
  voxbridge demo --browser                   try it in the browser, with your microphone
  voxbridge demo --talk --server sglang      simulate another server: legacy, sglang, vllm, backend; for speech alone
                                             also sglang-http, vllm-http or openai-audio; with --openai
                                             also openai or vllm-turn
  voxbridge demo --stay                      keep the servers running for your own client";

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  voxbridge serve --upstream ws://gpu-host:8006/v1/realtime
  voxbridge serve --config voxbridge.toml --log debug
  voxbridge serve --upstream ws://gpu-host:8006/v1/realtime --tls-self-signed
  voxbridge serve --upstream ws://gpu-host:8006/v1/realtime --playground
  VOXBRIDGE_UPSTREAM=wss://gpu-host/v1/realtime voxbridge serve --listen 0.0.0.0:8000

Flags override environment variables, which override the configuration file.
SIGHUP reloads configuration and mappings for new sessions. If they are invalid, serve keeps the old ones.
SIGTERM and SIGINT drain: serve accepts no new sessions, and running ones finish their current turn within
drain.timeout_ms. A second signal stops at once.";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  voxbridge check --config voxbridge.toml
  voxbridge check --mappings my-mappings
  voxbridge check --json

It reads flags, environment and file as serve does, and prints the resulting configuration.
It tries your mapping files in a synthetic session and warns about what does not work.";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  voxbridge completions bash > ~/.local/share/bash-completion/completions/voxbridge
  voxbridge completions zsh > ~/.zfunc/_voxbridge";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  voxbridge man > voxbridge.1
  voxbridge man serve | man -l -";

pub(super) const DOCTOR_EXAMPLES: &str = "\
Examples:
  voxbridge doctor --upstream ws://gpu-host:8006/v1/realtime
  voxbridge doctor --config voxbridge.toml --json
  voxbridge doctor --config voxbridge.toml --client-url ws://127.0.0.1:8000/v1/realtime

It opens one session with each upstream and closes it cleanly. If a step fails, it opens a few more sessions, one after
the other, to find the cause. Ctrl-C also closes open sessions cleanly.

Exit codes: 0 every step passed (the report marks slow steps), 1 a step failed, 2 the configuration is wrong.";

pub(super) const VERIFY_EXAMPLES: &str = "\
Examples:
  voxbridge verify --upstream ws://gpu-host:8006/v1/realtime --quick
  voxbridge verify --upstream ws://gpu-host:8006/v1/realtime --language en,zh --html report.html
  voxbridge verify --config voxbridge.toml --recordings examples/speech --json > gpu-1.json
  voxbridge verify --upstream ws://gpu-2:8006/v1/realtime --compare gpu-1.json
  voxbridge verify --compare gpu-1.json,gpu-2.json
  voxbridge verify --upstream http://gpu-host:8000 --upstream-dialect openai-audio --only transcription,speech
  voxbridge verify --turns my-recordings --turn-model smart-turn-v3.2-cpu.onnx

It takes workers of the server one after the other, as a user would; the section capacity takes up to --sessions-max at a time.
What the server does not offer is skipped. voxbridge's source has seven recordings with their words in examples/speech.
--json prints a list of {name, value, unit, expected, verdict, note, trace, try}, and with --compare {figures, comparison}. A trace is a complete record of the session that
failed, with audio: voxbridge replay FILE --svg session.svg.

--turns needs no server: it compares ways to find the end of a turn, a fixed silence, Smart Turn as Pipecat uses it, and voxbridge's own,
by how often each cuts the user off in a pause, and how late each is. A turn ends where the last speech of its file is, unless
turns.json beside the files says {\"FILE\": {\"end_ms\": 5230, \"set\": \"NAME\"}}; each set has a table. --json prints the pauses.

Exit codes: 0 every figure is as expected, or was skipped; 1 a figure failed, or with --compare, one fails that did not, or one
that passed is gone, or a file cannot be written; 2 the command line or the configuration is wrong; 66 a recording or a
report cannot be read; 69 no server answers (only without the section server); 130 or 143 after Ctrl-C or SIGTERM, with a report of
what was measured until then.";

pub(super) const SIMULATE_EXAMPLES: &str = "\
Examples:
  voxbridge simulate
  voxbridge simulate --recordings examples/speech
  voxbridge simulate --backend cpp --fault slow-init=3
  voxbridge simulate --server legacy
  voxbridge simulate --server vllm --listen 127.0.0.1:8000
  voxbridge simulate --server backend --listen 127.0.0.1:8080
  voxbridge simulate --server sglang --listen 127.0.0.1:18260
  voxbridge simulate --server openai --listen 127.0.0.1:8080
  voxbridge simulate --fault queue-full,times=2 --fault die-mid-answer=4

Faults: queue-full, busy, 403-after-queue[=TIMES], stuck-queue, slow-init=SECONDS, die-before-created,
never-answers, die-mid-answer[=DELTAS], drop-mid-answer[=DELTAS], empty-transcript, no-audio,
notices-leavers (loses no worker when a client leaves the queue, unlike the real servers).
In full duplex: slow-steps=SECONDS, burst[=UNITS], never-listens, ignores-force[=TIMES], yields, resumes,
late-audio, die-mid-turn[=UNITS], drop-mid-turn[=UNITS], double-terminal, repeats-text, think,
timeout=SECONDS, kv=N, context-full=N, input-backpressure (vllm), output-backpressure (vllm-0.32).
Of OpenAI's protocol also: inference-fails, slow-steps=SECONDS, late-audio, timeout=SECONDS, input-backpressure.
`,times=N` after a fault limits it to N occurrences.";

pub(super) const TRANSCRIBE_EXAMPLES: &str = "\
Examples:
  voxbridge transcribe --upstream ws://gpu-host:8006/v1/realtime --format srt -o lecture.srt lecture.m4a
  voxbridge transcribe --upstream ws://gpu-host:8006/v1/realtime --format vtt -r talks
  voxbridge transcribe --upstream ws://gpu-host:8006/v1/realtime --format json --word-timestamps talk.mp3
  voxbridge transcribe --url http://127.0.0.1:8000 --format json *.mp3 > transcripts.jsonl
  voxbridge transcribe --language de --json interview.wav > events.jsonl
  ffmpeg -i talk.wma -f wav - | voxbridge transcribe -

--upstream asks MiniCPM-o directly, several utterances and recordings at a time. An http:// URL is a server with OpenAI's API,
such as voxbridge: each recording is uploaded. A ws:// URL is a Macaw server or voxbridge: each recording is sent in real time,
like microphone audio, one after the other, and the times of subtitles are the server's.
Transcripts go to standard output, one utterance per line; progress and notes go to standard error. A recording that fails does
not stop the others; the last line says how many failed. If all failures have the same reason, the exit code is that of the
reason.

A file is written as the transcript comes, JSON at the end. With --upstream, Ctrl-C, SIGTERM, a crash or a lost upstream keep what
is there: FILE.resume beside the transcript says how far it is, and the same command goes on there. It stays until the transcript is
complete, and is locked while a command works on it. An utterance that fails is marked, as in `[not transcribed: 0:12 to 0:19]`,
and reported; the others are transcribed, and the exit code is 75. The same command asks for it again. With --url, a recording that was
interrupted begins anew. When no server answers any more, no further recording begins.

Subtitles end with sentences and clauses. Their times are estimated from the sound, because MiniCPM-o has no times of words.

Exit codes: 0 done, 75 done with gaps or left to another command, 130 Ctrl-C, 143 SIGTERM, 69 no upstream (any more); `voxbridge --help` lists all.";

pub(super) const SPEAK_EXAMPLES: &str = "\
Examples:
  voxbridge speak \"Good morning.\" -o morning.wav
  voxbridge speak --upstream ws://gpu-host:8006/v1/realtime --file chapter-*.txt -o audio/ --format wav
  voxbridge speak --upstream ws://gpu-host:8006/v1/realtime --file book/ --join -o book.mp3
  voxbridge speak - -o chapter.wav < chapter.txt
  voxbridge speak \"Good morning.\" -o - | aplay

A file appears under its name when it is complete. --upstream and --url are as for transcribe. If a text of several parts is
interrupted, those that were spoken are kept in OUT.resume, and the same command goes on after them.
Empty lines separate paragraphs. A Markdown heading, or a line such as `Chapter 1` between empty lines, begins a chapter; an mp3
file with several chapters lists them (ID3 CHAP). There is no m4b: no encoder for AAC is built in.";

pub(super) const TALK_EXAMPLES: &str = "\
Examples:
  voxbridge talk question.wav -o answer.wav
  arecord -f S16_LE -r 16000 -d 5 | voxbridge talk - -o answer.wav

The question is sent in real time, followed by silence until the model has answered.";

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
  voxbridge replay traces/1795148864000-sess_0123456789ab.jsonl --svg session.svg
  voxbridge replay --latency traces
  voxbridge replay --recording calls/1795148864000-sess_0123456789ab.wav --profile my-profile.toml --upstream ws://gpu-host:8006/v1/realtime
  voxbridge replay --recording calls/1795148864000-sess_0123456789ab.opus --config voxbridge.toml --svg then-and-now.svg

Exit codes: 0 the output is the same, the latencies are printed, or the recording was played, 1 the output differs, or the session
failed, 65 the file is not a trace or recording, 66 it or the other file of a recording cannot be read.
Missing audio in a trace is replayed as silence; the result lists what could not be compared because of it.

A recording is played by a client of Macaw's protocol, as its user was heard; what a client had set, asked to be spoken or
returned as results of its functions is not in a recording. Tool servers are called.";
