//! The audio tracks of WebM and Matroska files (RFC 9559 §5.1.4).

use bytes::Bytes;
use symphonia::core::codecs::audio::AudioCodecId;
use symphonia::core::codecs::audio::well_known::*;

use super::element::*;
use super::encoding::Encoding;
use crate::media::decode::demux::aac_config::AacConfig;
use crate::media::decode::demux::blocks::pcm;
use crate::media::decode::demux::entry;
use crate::media::decode::demux::wav_format::WavFormat;
use crate::media::decode::packet::{Nanos, Stream};

/// Most tracks.
const TRACKS_MAX: usize = 64;

/// An audio track.
pub(super) struct AudioTrack {
    pub(super) number: u64,
    pub(super) is_default: bool,
    pub(super) stream: Stream,
    pub(super) encoding: Encoding,
    /// How much earlier the codec's output begins than the times say.
    pub(super) delay: Nanos,
}

/// The audio tracks that a file lists.
pub(super) fn audio_tracks(file: &Bytes, tracks: Element) -> Vec<AudioTrack> {
    let entries = tracks.children(file).filter(|child| child.id == TRACK_ENTRY);
    entries.take(TRACKS_MAX).filter_map(|entry| parse_track(file, entry)).collect()
}

fn parse_track(file: &Bytes, track: Element) -> Option<AudioTrack> {
    let audio = track.child(file, AUDIO)?;
    let number = track.child(file, TRACK_NUMBER)?.number(file);
    let codec = track.child(file, CODEC_ID).map_or(&[][..], |id| id.bytes(file));
    let codec = std::str::from_utf8(codec).unwrap_or("").trim_end_matches('\0');
    let mut encoding = Encoding::parse(file, track);
    let private = track.child(file, CODEC_PRIVATE).map_or(&[][..], |private| private.bytes(file));
    let private = encoding.decode_private(private);
    let sound = Sound::parse(file, audio);
    let mut stream = sound.stream(codec, &private);
    if let Some(problem) = encoding.problem.take() {
        stream.unsupported = Some(format!("{} in {problem}", name(codec)));
    }
    Some(AudioTrack {
        number,
        is_default: track.child(file, FLAG_DEFAULT).is_none_or(|flag| flag.number(file) != 0),
        stream,
        encoding,
        delay: track.child(file, CODEC_DELAY).map_or(0, |delay| delay.number(file).min(1 << 40) as Nanos),
    })
}

/// The properties of the sound.
struct Sound {
    rate_hz: u32,
    channels: u16,
    bits: u64,
}

impl Sound {
    fn parse(file: &[u8], audio: Element) -> Self {
        let number = |id, default| audio.child(file, id).map_or(default, |child| child.number(file));
        let rate_hz = audio.child(file, SAMPLING_FREQUENCY).map_or(8000.0, |rate| rate.float(file));
        Self {
            rate_hz: rate_hz.round() as u32,
            channels: number(CHANNELS, 1).min(255) as u16,
            bits: number(BIT_DEPTH, 0),
        }
    }

    fn stream(&self, codec: &str, private: &[u8]) -> Stream {
        let bytes = (self.bits / 8) as usize;
        let codec_id = match codec {
            "A_OPUS" => return self.with(CODEC_ID_OPUS, private),
            "A_VORBIS" => return self.with(CODEC_ID_VORBIS, &vorbis_headers(private).unwrap_or_default()),
            "A_FLAC" => return self.with(CODEC_ID_FLAC, flac_info(private).unwrap_or_default()),
            "A_ALAC" => return entry::alac_stream(private, self.rate_hz, self.channels),
            "A_MS/ACM" => return self.wav_stream(private),
            _ if codec.starts_with("A_AAC") => return self.aac_stream(private),
            "A_MPEG/L1" => Some(CODEC_ID_MP1),
            "A_MPEG/L2" => Some(CODEC_ID_MP2),
            "A_MPEG/L3" => Some(CODEC_ID_MP3),
            "A_PCM/INT/LIT" if bytes == 1 => Some(CODEC_ID_PCM_U8),
            "A_PCM/INT/LIT" => pcm(bytes, false, false),
            "A_PCM/INT/BIG" => pcm(bytes, true, false),
            "A_PCM/FLOAT/IEEE" => pcm(bytes, false, true),
            _ => None,
        };
        match codec_id {
            Some(codec) => self.with(codec, &[]),
            None => Stream::unsupported(name(codec)),
        }
    }

    fn with(&self, codec: AudioCodecId, headers: &[u8]) -> Stream {
        Stream::of(codec, self.rate_hz, self.channels, headers)
    }

    fn wav_stream(&self, format: &[u8]) -> Stream {
        match WavFormat::parse(format) {
            Some(WavFormat::Blocks(format)) => Stream { params: format.params(), ..Stream::default() },
            Some(WavFormat::MpegAudio) => self.with(CODEC_ID_MP3, &[]),
            Some(WavFormat::Unsupported(name)) => Stream::unsupported(name),
            None => Stream::unsupported(name("A_MS/ACM")),
        }
    }

    /// Old files state profile, rate and channels only outside of the codec's own header.
    fn aac_stream(&self, config: &[u8]) -> Stream {
        if !config.is_empty() {
            return entry::aac_stream(config);
        }
        let channel_configuration = self.channels.min(7) as u8;
        AacConfig { object_type: 2, rate_hz: self.rate_hz, channel_configuration, has_short_frames: false }
            .stream()
    }
}

/// The identification and the setup of three headers, whose lengths precede them.
fn vorbis_headers(private: &[u8]) -> Option<Vec<u8>> {
    let (_count, mut rest) = private.split_first().filter(|(count, _)| **count == 2)?;
    let mut lens = [0; 2];
    for len in &mut lens {
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            *len += usize::from(*byte);
            if *byte < 255 {
                break;
            }
        }
    }
    Some([rest.get(..lens[0])?, rest.get(lens[0] + lens[1]..)?].concat())
}

/// The stream information, behind a marker and the header of its block.
fn flac_info(private: &[u8]) -> Option<&[u8]> {
    private.strip_prefix(b"fLaC")?.get(4..38)
}

fn name(codec: &str) -> String {
    match codec {
        "A_AC3" | "A_AC3/BSID9" | "A_AC3/BSID10" => "AC-3".to_owned(),
        "A_EAC3" => "E-AC-3".to_owned(),
        "A_TRUEHD" => "TrueHD".to_owned(),
        "A_OPUS" => "Opus".to_owned(),
        "A_VORBIS" => "Vorbis".to_owned(),
        "A_WAVPACK4" => "WavPack".to_owned(),
        _ if codec.starts_with("A_DTS") => "DTS".to_owned(),
        "" => "without name".to_owned(),
        _ => codec.chars().filter(|char| !char.is_control()).take(40).collect(),
    }
}
