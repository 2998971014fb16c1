//! Advice on a failed figure, by the figure's name. The longest matching beginning decides.

/// Beginnings of names, and the advice for them.
const ADVICE: [(&str, &str); 29] = [
    ("", "Read the trace with `voxbridge replay FILE --svg session.svg`, and send it with the report."),
    (
        "server",
        "Run `voxbridge doctor --upstream URL` for the cause, and mend this first: nothing else can work.",
    ),
    (
        "transcription",
        "Listen to the recording, and read the transcript in the trace: `voxbridge replay FILE --svg session.svg`.",
    ),
    (
        "transcription.word_error",
        "Check that the server runs MiniCPM-o 4.5 and not another model or a coarse quantisation, that its GPU memory is not full, and that the language is right (--language). The words of a simulator without --recordings or --engines are never right.",
    ),
    (
        "transcription.latency",
        "Check that no other client uses the worker (`nvidia-smi`), or add a worker. A remote server adds its network's delay; `voxbridge doctor` shows it.",
    ),
    (
        "transcription.real_time_factor",
        "The GPU is too slow or shared: use a faster one, a smaller quantisation, or fewer sessions at a time.",
    ),
    (
        "speech",
        "Check that the server was started with speech output, and that its log shows no error of the vocoder.",
    ),
    (
        "speech.word_error",
        "Listen to the sound in the HTML report. If it is right, the transcript is wrong: see transcription. If not, check the voice sample: 5 to 15 s of one speaker, without noise.",
    ),
    (
        "speech.symbols",
        "Listen to the sound. The characters are spelled out before they reach the model; a profile of your own can change [speak.symbols].",
    ),
    (
        "speech.long",
        "Listen to the sound for missing parts. A smaller speak.part_max_chars in a profile of your own makes shorter requests.",
    ),
    (
        "speech.symbols.lost_words",
        "Listen to the sound for the words of the characters. A profile of your own can spell them in another way: [speak.symbols].",
    ),
    (
        "speech.voice",
        "Listen to the sound, and check the sample of this voice: 5 to 15 s of one speaker, without noise.",
    ),
    (
        "speech.first_audio",
        "Check that no other client uses the worker, or add a worker. A voice sample of less than 15 s is faster.",
    ),
    (
        "speech.real_time_factor",
        "Speech is made slower than it is heard: use a faster GPU, or fewer sessions at a time.",
    ),
    (
        "languages",
        "MiniCPM-o is documented for English and Chinese. Listen to the sound, and try a prompt for the language: `prompts.xx` in [hear] of a profile of your own.",
    ),
    (
        "assistant",
        "Read the trace. An answer without audio or words is the server's: check its log, and that it was started with speech output.",
    ),
    (
        "assistant.first_audio",
        "Use a faster GPU, or shorten [listen] end_ms in a profile of your own, which ends a turn sooner.",
    ),
    (
        "tools",
        "The model is prompted for calls, but not trained for them. Use fewer tools, shorter descriptions, or `tool_choice`.",
    ),
    (
        "conversation",
        "Read the trace. Check the server's log, and that the server takes full duplex (`mode=audio`) with this GPU.",
    ),
    (
        "conversation.answers",
        "Check that the server's log shows no error in full duplex, and that the GPU answers each second of audio in less than a second.",
    ),
    (
        "conversation.audio",
        "The model sent silence for its words: check the server's log, and that it was started with speech output.",
    ),
    (
        "conversation.first_audio",
        "The model decides itself when to answer. Use a faster GPU, and check that the recording is loud enough.",
    ),
    (
        "conversation.stop",
        "Send the trace with the report: voxbridge stops playback by itself, so that the user was not heard in time.",
    ),
    (
        "conversation.lost_sessions",
        "The server ended a session before its time, or its back-end died: read its log. voxbridge went on in another session.",
    ),
    ("conversation.stale_audio", "Send the trace with the report: no audio may follow an interruption."),
    (
        "conversation.stall",
        "The model answers slower than real time: use a faster GPU, or fewer sessions at a time.",
    ),
    (
        "conversation.dropped_audio",
        "The server takes audio slower than real time: use a faster GPU, or fewer sessions at a time.",
    ),
    (
        "conversation.rollover",
        "Compare with server.init: the gap of a server with one worker is the time in which it initialises a session. With two workers or more, `standby = true` in [rollover] of a profile of your own opens the next session ahead. Send the trace with the report if the gap is much longer than that.",
    ),
    ("capacity", "Add workers to the server, or name more upstreams: `--upstream URL,URL`."),
];

/// The advice for the figure of this name.
#[must_use]
pub fn for_figure(name: &str) -> &'static str {
    let matching = ADVICE.iter().filter(|(beginning, _)| name.starts_with(beginning));
    matching.max_by_key(|(beginning, _)| beginning.len()).map_or("", |(_, advice)| advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::figure::Section;

    #[test]
    fn every_section_has_advice_of_its_own() {
        for section in Section::ALL {
            assert!(ADVICE.iter().any(|(beginning, _)| *beginning == section.name()), "{}", section.name());
        }
        assert!(for_figure("speech.long.word_error").contains("part_max_chars"));
        assert_ne!(for_figure("speech.other"), for_figure("speech.long"));
    }
}
