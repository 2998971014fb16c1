use super::*;
use crate::audio::wav;

fn decode(file: &[u8]) -> (Vec<i16>, Option<MediaError>) {
    let mut decoder = Decoder::open(Bytes::copy_from_slice(file), DecodeLimits::default()).unwrap();
    let mut samples = Vec::new();
    let mut error = None;
    while let Some(chunk) = decoder.next_chunk() {
        match chunk {
            Ok(chunk) => samples.extend(chunk),
            Err(told) => error = Some(told),
        }
    }
    (samples, error)
}

fn tone(samples: usize) -> Vec<i16> {
    (0..samples).map(|at| ((at as f32 * 0.2).sin() * 9000.0) as i16).collect()
}

#[test]
fn wav_at_16_khz_is_returned_unchanged() {
    let samples = tone(20_000);
    assert_eq!(decode(&wav::write_s16(&samples, 16_000)), (samples, None));
}
