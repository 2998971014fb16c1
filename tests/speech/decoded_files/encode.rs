//! Encodes speech with public encoders: containers and codecs, at several rates and with one and two channels.

use std::process::Command;

use super::*;
use crate::media_files::recording;

/// Names, and arguments of ffmpeg.
const FORMATS: [(&str, &str); 62] = [
    ("cbr.mp3", "-c:a libmp3lame -b:a 64k"),
    ("vbr.mp3", "-c:a libmp3lame -q:a 4"),
    ("bare.mp3", "-c:a libmp3lame -b:a 64k -write_xing 0 -id3v2_version 0"),
    ("bare_vbr.mp3", "-c:a libmp3lame -q:a 4 -write_xing 0"),
    ("two.mp2", "-c:a mp2 -b:a 64k"),
    ("adts.aac", "-c:a aac -b:a 64k"),
    ("aac.m4a", "-c:a aac -b:a 64k"),
    ("fast.m4a", "-c:a aac -movflags faststart"),
    ("alac.m4a", "-c:a alac"),
    ("fragments.mp4", "-c:a aac -movflags frag_keyframe+empty_moov+default_base_moof -frag_duration 500000"),
    ("hybrid.mp4", "-c:a aac -movflags frag_keyframe -frag_duration 700000"),
    ("mp3.mp4", "-c:a libmp3lame"),
    ("flac.mp4", "-c:a flac -strict -2"),
    ("aac.mov", "-c:a aac"),
    ("alac.mov", "-c:a alac"),
    ("s16le.mov", "-c:a pcm_s16le"),
    ("s16be.mov", "-c:a pcm_s16be"),
    ("s24le.mov", "-c:a pcm_s24le"),
    ("s24be.mov", "-c:a pcm_s24be"),
    ("s32be.mov", "-c:a pcm_s32be"),
    ("f32le.mov", "-c:a pcm_f32le"),
    ("f64be.mov", "-c:a pcm_f64be"),
    ("u8.mov", "-c:a pcm_u8"),
    ("s8.mov", "-c:a pcm_s8"),
    ("ulaw.mov", "-c:a pcm_mulaw"),
    ("alaw.mov", "-c:a pcm_alaw"),
    ("ima4.mov", "-c:a adpcm_ima_qt"),
    ("vorbis.webm", "-c:a libvorbis"),
    ("aac.mkv", "-c:a aac"),
    ("mp3.mkv", "-c:a libmp3lame"),
    ("flac.mkv", "-c:a flac"),
    ("alac.mkv", "-c:a alac"),
    ("s16.mkv", "-c:a pcm_s16le"),
    ("s24.mkv", "-c:a pcm_s24le"),
    ("f32.mkv", "-c:a pcm_f32le"),
    ("ulaw.mkv", "-c:a pcm_mulaw"),
    ("vorbis.ogg", "-c:a libvorbis"),
    ("flac.ogg", "-c:a flac"),
    ("plain.flac", "-c:a flac"),
    ("s16.wav", "-c:a pcm_s16le"),
    ("u8.wav", "-c:a pcm_u8"),
    ("s24.wav", "-c:a pcm_s24le"),
    ("s32.wav", "-c:a pcm_s32le"),
    ("f32.wav", "-c:a pcm_f32le"),
    ("f64.wav", "-c:a pcm_f64le"),
    ("ms.wav", "-c:a adpcm_ms"),
    ("ima.wav", "-c:a adpcm_ima_wav"),
    ("alaw.wav", "-c:a pcm_alaw"),
    ("ulaw.wav", "-c:a pcm_mulaw"),
    ("rf64.wav", "-rf64 always"),
    ("mp3.wav", "-c:a libmp3lame"),
    ("s16.aiff", "-c:a pcm_s16be"),
    ("s24.aiff", "-c:a pcm_s24be"),
    ("sowt.aiff", "-c:a pcm_s16le"),
    ("f32.aiff", "-c:a pcm_f32be"),
    ("ulaw.aiff", "-c:a pcm_mulaw"),
    ("s16be.caf", "-c:a pcm_s16be"),
    ("s16le.caf", "-c:a pcm_s16le"),
    ("f32.caf", "-c:a pcm_f32le"),
    ("alac.caf", "-c:a alac"),
    ("ima4.caf", "-c:a adpcm_ima_qt"),
    ("ulaw.caf", "-c:a pcm_mulaw"),
];

/// Opus has fewer rates.
const OPUS: [(&str, &str); 6] = [
    ("opus.webm", "-c:a libopus -b:a 48k"),
    ("live.webm", "-c:a libopus -b:a 48k -live 1"),
    ("opus.ogg", "-c:a libopus -b:a 48k"),
    ("long.ogg", "-c:a libopus -b:a 48k -frame_duration 60"),
    ("family1.ogg", "-c:a libopus -b:a 48k -mapping_family 1"),
    ("opus.mp4", "-c:a libopus -b:a 48k"),
];

/// Rates with channels, and the recording that they have.
const VARIANTS: [(u32, u32, &str); 4] = [
    (48_000, 2, "goforward_16k.wav"),
    (16_000, 1, "goforward_16k.wav"),
    (44_100, 1, "arctic_a0007_16k.wav"),
    (24_000, 2, "goforward_16k.wav"),
];

/// Encodes every format in every variant, one process for each variant.
pub(super) fn with_ffmpeg(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for (rate_hz, channels, source) in VARIANTS {
        let mut command = ffmpeg();
        command.arg("-i").arg(recording(source));
        let opus = OPUS.iter().filter(|_| rate_hz != 44_100);
        for (name, arguments) in FORMATS.iter().chain(opus) {
            let path = dir.join(format!("{}k{channels}_{name}", rate_hz / 1000));
            command.args(["-ar", &rate_hz.to_string(), "-ac", &channels.to_string()]);
            command.args(arguments.split(' ')).arg(&path);
            files.push(path);
        }
        run(&mut command);
    }
    files
}

/// Files of the codecs' own programs.
pub(super) fn with_own_programs(dir: &Path) -> Vec<PathBuf> {
    let source = recording("goforward_16k.wav");
    let path = |name: &str| dir.join(name);
    let encode = |program: &str, arguments: &str, name: &str| {
        let mut command = Command::new(program);
        let out = path(name);
        for argument in arguments.split(' ') {
            match argument {
                "IN" => command.arg(&source),
                "OUT" => command.arg(&out),
                other => command.arg(other),
            };
        }
        run(&mut command);
        out
    };
    vec![
        encode("lame", "--quiet IN OUT", "lame_cbr.mp3"),
        encode("lame", "--quiet -V5 IN OUT", "lame_vbr.mp3"),
        encode("lame", "--quiet -V5 -t --resample 44.1 IN OUT", "lame_bare.mp3"),
        encode("opusenc", "--quiet --framesize 2.5 IN OUT", "opusenc_short.opus"),
        encode("opusenc", "--quiet --framesize 60 IN OUT", "opusenc_long.opus"),
        encode("opusenc", "--quiet --downmix-mono IN OUT", "opusenc.opus"),
        encode("flac", "-s -f -o OUT IN", "flac.flac"),
        encode("flac", "-s -f --ogg -o OUT IN", "flac.oga"),
        encode("sox", "IN OUT", "sox.wav"),
        encode("sox", "IN OUT", "sox.aiff"),
        encode("sox", "IN -r 8000 -e mu-law OUT", "sox_ulaw.wav"),
    ]
}

/// The tracks of Matroska as mkvmerge compresses and joins them.
pub(super) fn with_mkvmerge(dir: &Path, files: &[PathBuf]) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for name in [
        "48k2_opus.ogg",
        "44k1_vorbis.ogg",
        "16k1_plain.flac",
        "16k1_s16.wav",
        "44k1_cbr.mp3",
        "44k1_adts.aac",
    ] {
        let source = files.iter().find(|path| path.ends_with(name)).unwrap();
        for compression in ["zlib", "none"] {
            let out = dir.join(format!("{compression}_{name}.mka"));
            run(Command::new("mkvmerge")
                .args(["-q", "--compression", &format!("0:{compression}"), "-o"])
                .arg(&out)
                .arg(source));
            made.push(out);
        }
    }
    made
}

/// Films whose sound begins later, and recordings with a gap. Their names begin with `timed`.
pub(super) fn with_times(dir: &Path) -> Vec<PathBuf> {
    let speech = recording("arctic_a0007_16k.wav");
    let mut made = Vec::new();
    for (name, video, audio) in [
        ("late.mp4", "mpeg4", "aac"),
        ("late.mov", "mpeg4", "aac"),
        ("late.mkv", "mpeg4", "libvorbis"),
        ("late.webm", "libvpx", "libopus"),
    ] {
        let out = dir.join(format!("timed_{name}"));
        let mut command = ffmpeg();
        command.args(["-f", "lavfi", "-i", "color=gray:64x64:r=5:d=9", "-itsoffset", "3", "-i"]).arg(&speech);
        command.args(["-map", "0:v", "-map", "1:a", "-c:v", video, "-c:a", audio]).arg(&out);
        run(&mut command);
        made.push(out);
    }
    let codecs = [("aac", "mkv"), ("libopus", "webm"), ("aac", "mp4"), ("pcm_s16le", "mov"), ("flac", "mkv")];
    for (codec, container) in codecs {
        let out = dir.join(format!("timed_gap_{codec}.{container}"));
        let mut command = ffmpeg();
        command.arg("-i").arg(&speech).args(["-af", "asetpts='if(gte(T,1.5),PTS+3/TB,PTS)'", "-c:a", codec]);
        run(command.arg(&out));
        made.push(out);
    }
    made
}

/// Files whose codec is not supported, and the name that says so.
pub(super) fn with_other_codecs(dir: &Path) -> Vec<(PathBuf, &'static str)> {
    let codecs = [
        ("ac3.mp4", "-c:a ac3 -ar 48000", "AC-3"),
        ("ac3.mkv", "-c:a ac3 -ar 48000", "AC-3"),
        ("g726.wav", "-c:a g726 -ar 8000", "G.726"),
        ("surround.m4a", "-c:a aac -ac 6", "AAC with more than two channels"),
        ("surround.aac", "-c:a aac -ac 6", "AAC with more than two channels"),
        ("discrete.opus", "-c:a libopus -ac 2 -mapping_family 255", "Opus with channels that have no place"),
    ];
    let mut made: Vec<_> = codecs
        .iter()
        .map(|(name, arguments, codec)| {
            let out = dir.join(name);
            let mut command = ffmpeg();
            command.arg("-i").arg(recording("goforward_16k.wav")).args(arguments.split(' '));
            run(command.arg(&out));
            (out, *codec)
        })
        .collect();
    let gsm = dir.join("gsm.wav");
    let sox = Command::new("sox")
        .arg(recording("goforward_16k.wav"))
        .args(["-r", "8000", "-e", "gsm-full-rate"])
        .arg(&gsm)
        .output();
    assert!(sox.unwrap().status.success());
    made.push((gsm, "GSM 6.10"));
    made
}

/// Films with two audio tracks; the second is the right one: the default, or the one that can be decoded.
pub(super) fn with_two_tracks(dir: &Path) -> Vec<PathBuf> {
    let mut made = Vec::new();
    for (name, codecs) in [
        ("default.mkv", "-c:a aac -disposition:a:0 0 -disposition:a:1 default"),
        ("default.mp4", "-c:a aac -disposition:a:0 0 -disposition:a:1 default"),
        ("decodable.mkv", "-c:a:0 ac3 -c:a:1 aac"),
        ("decodable.mp4", "-c:a:0 ac3 -c:a:1 aac"),
    ] {
        let out = dir.join(name);
        let mut command = ffmpeg();
        command
            .args(["-f", "lavfi", "-i", "anullsrc=r=48000:cl=mono:d=4", "-i"])
            .arg(recording("arctic_a0007_16k.wav"));
        command.args(["-map", "0:a", "-map", "1:a", "-ar", "48000"]).args(codecs.split(' ')).arg(&out);
        run(&mut command);
        made.push(out);
    }
    made
}

pub(super) fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
